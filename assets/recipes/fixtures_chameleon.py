"""Parity fixtures for Chameleon, Anole and Lumina-mGPT, made by `transformers` on two tiny configurations.

`plain`: RMSNorms before the parts, fewer key heads than query heads, a norm row of its own for each head, image tokens
in shuffled order. `swin`: RMSNorms after the parts, norm rows for pairs of heads, blocks of the image tokenizer that
attend. Language models are random (bf16); the image tokenizer's weights are hashes of their names
(hashed_weights.py). fp32 on the CPU, eager attention. The class masks the logits of image tokens and has no way from
codes to pixels: logits are taken from its final states and its output layer, and the decoder is written here after
the published description (taming's VQGAN: residual blocks, attention in the middle, nearest upsampling).

Writes tests/golden/chameleon/<name>/: the files of save_pretrained() but for the image tokenizer's tensors, and
recorded.safetensors with prompts, hidden states between the layers, logits, the guided greedy stream of 25 codes (guidance 3 against the first and
the last token of the prompt), its picture, and the codes of a picture that the class encodes. `plain` also holds a
stream of Lumina-mGPT: 12x8 pixels, sizes and row ends forced, guidance 4 against the tokens from begin of image on.
`authors/`: the swin model with one norm row for all heads as the authors' files have it (interleaved pairs).

  python assets/recipes/fixtures_chameleon.py
"""
import json
import shutil
import tempfile
from pathlib import Path

import torch
import torch.nn.functional as F
from safetensors.torch import save_file
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, processors
from transformers import (ChameleonConfig, ChameleonForConditionalGeneration, ChameleonProcessor,
                          ChameleonVQVAEConfig, GenerationConfig, PreTrainedTokenizerFast)
from transformers.models.chameleon.image_processing_pil_chameleon import ChameleonImageProcessorPil

from hashed_weights import hashed, weight

OUT = Path(__file__).resolve().parents[2] / "tests" / "golden" / "chameleon"
CODES, HIDDEN, VOCAB, GRID = 64, 32, 128, 5
SPECIALS = ["<s>", "<pad>", "</s>", "<unk>"]
CONTROL = ["<eoss>", "<racm3:break>", "<reserved08706>", "<image>", "<reserved08799>", "<reserved08801>",
           "<reserved08802>", "<reserved08803>", "<reserved08804>"]
LETTERS = ["Ġ", "Ċ", ",", ":", "G", *"abcdefghijklmnopqrstuvwxyz", *"0123456789"]
PROMPT, WIDTH, HEIGHT = "a red cube", 12, 8
LUMINA = f"Generate an image of {WIDTH}x{HEIGHT} according to the following prompt:\n{PROMPT}"
CONFIGS = {
    "plain": {"kv": 2, "swin": False, "mult": [1, 2], "blocks": 2, "attend": False, "shuffled": True, "seed": 20240517},
    "swin": {"kv": 4, "swin": True, "mult": [1, 2, 2], "blocks": 1, "attend": True, "shuffled": False, "seed": 20240518},
}


def code_name(code):
    return "IMGIMG" + "".join("ABCDEFGHIJ"[int(digit)] for digit in str(code)) + "Z"


def vocabulary(spec):
    order = list(range(CODES))
    if spec["shuffled"]:
        order = torch.randperm(CODES, generator=torch.Generator().manual_seed(spec["seed"])).tolist()
    words = SPECIALS + [code_name(code) for code in order] + CONTROL + LETTERS
    words += [f"<reserved{i:05d}>" for i in range(VOCAB - len(words))]
    return {word: i for i, word in enumerate(words)}


def tokenizer(words):
    core = Tokenizer(models.BPE(vocab=words, merges=[]))
    core.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    core.decoder = decoders.ByteLevel()
    core.add_special_tokens([AddedToken(t, special=True, normalized=False) for t in SPECIALS + CONTROL])
    assert core.get_vocab_size() == VOCAB
    return core


def config(spec, words):
    factor = 2 ** (len(spec["mult"]) - 1)
    vq = ChameleonVQVAEConfig(base_channels=32, channel_multiplier=spec["mult"], num_res_blocks=spec["blocks"],
                              latent_channels=8, embed_dim=8, num_embeddings=CODES, resolution=GRID * factor,
                              attn_resolutions=[GRID] if spec["attend"] else None)
    return ChameleonConfig(vocab_size=VOCAB, hidden_size=HIDDEN, intermediate_size=48, num_hidden_layers=2,
                           num_attention_heads=4, num_key_value_heads=spec["kv"], max_position_embeddings=128,
                           swin_norm=spec["swin"], model_parallel_size=2 if spec["swin"] else 1,
                           vq_config=vq.to_dict(), vocabulary_map=words)


def randomise(model, spec):
    generator = torch.Generator().manual_seed(spec["seed"])
    with torch.no_grad():
        for name, p in sorted(model.named_parameters()):
            if ".vqmodel." in name:
                p.copy_(weight(name.removeprefix("model.vqmodel."), p.shape))
                continue
            noise = torch.randn(p.shape, generator=generator)
            if "_norm." in name and "self_attn" in name:
                if spec["swin"]:  # a row for each pair of heads
                    noise = noise[::2].repeat_interleave(2, 0)
                p.copy_(1 + 0.3 * noise if name.endswith("weight") else 0.3 * noise)
            elif p.dim() < 2:
                p.copy_(1 + 0.3 * noise)
            elif "embed" in name:
                p.copy_(noise)
            else:
                p.copy_(noise * (1.2 / p[0].numel() ** 0.5))
            p.copy_(p.bfloat16().float())


def save_folder(model, core, words, folder):
    """As published: texts begin with <s>, a separator ends a turn."""
    core.post_processor = processors.TemplateProcessing("<s> $A", None, [("<s>", words["<s>"])])
    fast = PreTrainedTokenizerFast(tokenizer_object=core, bos_token="<s>", eos_token="</s>", pad_token="<pad>",
                                   unk_token="<unk>", sep_token="<reserved08706>")
    model.generation_config = GenerationConfig(bos_token_id=1, eos_token_id=2)
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as scratch:
        model.save_pretrained(scratch)
        ChameleonProcessor(ChameleonImageProcessorPil(), fast).save_pretrained(scratch)
        for path in Path(scratch).glob("*.json"):
            shutil.copy(path, folder / path.name)
    language = {k: v.bfloat16() for k, v in model.state_dict().items() if ".vqmodel." not in k}
    save(folder, language, "language")


class Decoder:
    """Codes to a picture [1, 3, h, w]; weights by taming's names, level 0 is the one of full resolution."""

    def __init__(self, spec, embedding):
        self.spec, self.embedding = spec, embedding

    def conv(self, name, x, out, kernel=3):
        w = weight(name + ".weight", (out, x.shape[1], kernel, kernel)).float()
        return F.conv2d(x, w, weight(name + ".bias", (out,)).float(), padding=kernel // 2)

    def norm(self, name, x):
        w, b = (weight(name + leaf, (x.shape[1],)).float() for leaf in (".weight", ".bias"))
        return F.group_norm(x, 32, w, b, 1e-6)

    def block(self, name, x, out):
        h = self.conv(name + ".conv1", F.silu(self.norm(name + ".norm1", x)), out)
        h = self.conv(name + ".conv2", F.silu(self.norm(name + ".norm2", h)), out)
        return h + (x if x.shape[1] == out else self.conv(name + ".nin_shortcut", x, out, 1))

    def attention(self, name, x):
        channels = x.shape[1]
        q, k, v = (self.conv(f"{name}.{part}", self.norm(name + ".norm", x), channels, 1).flatten(2) for part in "qkv")
        seen = torch.softmax(q.transpose(1, 2) @ k * channels ** -0.5, -1)
        mixed = (seen @ v.transpose(1, 2)).transpose(1, 2).reshape(x.shape)
        return x + self.conv(name + ".proj_out", mixed, channels, 1)

    def __call__(self, codes, rows, columns):
        x = self.embedding[codes].reshape(1, rows, columns, -1).permute(0, 3, 1, 2)
        x = self.conv("post_quant_conv", x, 8, 1)
        widths = [32 * m for m in self.spec["mult"]]
        x = self.conv("decoder.conv_in", x, widths[-1])
        x = self.block("decoder.mid.block_1", x, widths[-1])
        x = self.attention("decoder.mid.attn_1", x)
        x = self.block("decoder.mid.block_2", x, widths[-1])
        for level in reversed(range(len(widths))):
            for i in range(self.spec["blocks"] + 1):
                x = self.block(f"decoder.up.{level}.block.{i}", x, widths[level])
                if self.spec["attend"] and level == len(widths) - 1:
                    x = self.attention(f"decoder.up.{level}.attn.{i}", x)
            if level > 0:
                x = self.conv(f"decoder.up.{level}.upsample.conv", F.interpolate(x, scale_factor=2.0), widths[level])
        return self.conv("decoder.conv_out", F.silu(self.norm("decoder.norm_out", x)), 3)


class Reference:
    def __init__(self, model, words):
        self.model, self.words = model, words
        self.ids = torch.tensor([words[code_name(code)] for code in range(CODES)])
        self.gap = torch.inf

    def states(self, ids):
        return self.model.model(input_ids=torch.tensor([ids]), use_cache=False, output_hidden_states=True)

    def logits(self, ids):
        return self.model.lm_head(self.states(ids).last_hidden_state)[0]

    def greedy(self, prompt, other, length, guidance, forced):
        """The stream in ids of the vocabulary, and its codes."""
        tokens, codes = [], []
        for position in range(length):
            wanted = forced(position)
            if wanted is not None:
                tokens.append(self.words[wanted])
                continue
            c, u = (self.logits(ids + tokens)[-1][self.ids] for ids in (prompt, other))
            row = u + guidance * (c - u)
            best = row.topk(2)
            self.gap = min(self.gap, float(best.values[0] - best.values[1]))
            codes.append(int(best.indices[0]))
            tokens.append(int(self.ids[codes[-1]]))
        return tokens, codes


def mixed_answer(reference, question, images):
    """Texts and images in turn, greedily, as ids after the question: text without image tokens and with a repetition
    penalty of 1.2, until the end of a turn or 24 tokens of text; each image against begin of text and of image."""
    words, ids, text, pictures = reference.words, list(question), 0, []
    begin, image = words["<s>"], words["<racm3:break>"]
    forbidden = torch.cat([reference.ids, torch.tensor([words["<eoss>"]])])
    while text < 24:
        row = reference.logits(ids)[-1].clone()
        seen = torch.tensor(sorted(set(ids)))
        row[seen] = torch.where(row[seen] < 0, row[seen] * 1.2, row[seen] / 1.2)
        row[forbidden] = -torch.inf
        best = row.topk(2)
        reference.gap = min(reference.gap, float(best.values[0] - best.values[1]))
        ids.append(int(best.indices[0]))
        text += 1
        if ids[-1] in (words["<reserved08706>"], words["</s>"]):
            break
        if ids[-1] == image:
            if len(pictures) == images:
                break
            stream, codes = reference.greedy(ids, [begin, image], GRID * GRID + 1, 3.0,
                                             lambda position: "<eoss>" if position == GRID * GRID else None)
            ids += stream
            pictures.append(codes)
    return ids[len(question):], pictures


def record_branch(reference, name, ids, out):
    seen = reference.states(ids)
    out[f"{name}.hidden"] = seen.hidden_states[1][0]
    out[f"{name}.final"] = seen.last_hidden_state[0]
    out[f"{name}.logits"] = reference.model.lm_head(seen.last_hidden_state)[0][:, reference.ids]


def save(folder, tensors, stem):
    folder.mkdir(parents=True, exist_ok=True)
    save_file({k: v.contiguous().clone() for k, v in tensors.items()}, folder / f"{stem}.safetensors", {"format": "pt"})


def ints(values):
    return torch.tensor(values, dtype=torch.int32)


def interleaved(rows, heads):
    """From halves to pairs, the first axis."""
    return rows.reshape(heads, 2, rows.shape[0] // heads // 2, -1).transpose(1, 2).reshape(rows.shape)


def save_authors(model, reference, prompt, tokens):
    folder = OUT / "authors"
    state = model.state_dict()
    for name, value in state.items():
        if "self_attn.q_norm" in name or "self_attn.k_norm" in name:
            value.copy_(value[:1].expand_as(value))
    recorded = {}
    record_branch(reference, "cond", prompt + tokens[:-1], recorded)
    out = {"tok_embeddings.weight": state["model.embed_tokens.weight"], "norm.weight": state["model.norm.weight"],
           "output.weight": state["lm_head.weight"], "rope.freqs": torch.zeros(4)}
    parts = {"self_attn.v_proj": "attention.wv", "self_attn.o_proj": "attention.wo", "mlp.gate_proj": "feed_forward.w1",
             "mlp.down_proj": "feed_forward.w2", "mlp.up_proj": "feed_forward.w3", "input_layernorm": "attention_norm",
             "post_attention_layernorm": "ffn_norm"}
    for i in range(2):
        there, here = f"model.layers.{i}.", f"layers.{i}."
        for old, new in parts.items():
            out[f"{here}{new}.weight"] = state[f"{there}{old}.weight"]
        for part in "qk":
            out[f"{here}attention.w{part}.weight"] = interleaved(state[f"{there}self_attn.{part}_proj.weight"], 4)
            for leaf in ("weight", "bias"):
                row = state[f"{there}self_attn.{part}_norm.{leaf}"][0]
                out[f"{here}attention.{part}_normalization.{leaf}"] = interleaved(row[:, None], 1)[:, 0]
    folder.mkdir(parents=True, exist_ok=True)
    torch.save({k: v.bfloat16().contiguous().clone() for k, v in out.items()}, folder / "consolidated.pth")
    params = {"model_parallel_size": 1, "seed": 7,
              "model": {"dim": HIDDEN, "n_layers": 2, "n_heads": 4, "vocab_size": VOCAB, "multiple_of": 48,
                        "ffn_dim_multiplier": 0.5, "norm_eps": 1e-5, "qk_normalization": True, "swin_norm": True}}
    (folder / "params.json").write_text(json.dumps(params, indent=1) + "\n")
    save(folder, {"logits": recorded["cond.logits"][-12:], "prompt": ints(prompt)}, "recorded")


@torch.no_grad()
def make(name, spec):
    words = vocabulary(spec)
    c = config(spec, words)
    c._attn_implementation = "eager"
    model = ChameleonForConditionalGeneration(c).eval().float()
    randomise(model, spec)
    reference = Reference(model, words)
    core = tokenizer(words)
    begin, turn, image = words["<s>"], words["<reserved08706>"], words["<racm3:break>"]
    prompt = [begin] + core.encode(PROMPT).ids + [turn, image]
    tokens, codes = reference.greedy(prompt, [begin, image], GRID * GRID + 1, 3.0,
                                     lambda position: "<eoss>" if position == GRID * GRID else None)
    vq = model.model.vqmodel
    decoder = Decoder(spec, vq.quantize.embedding.weight)
    side = c.vq_config.resolution
    picture = hashed("image", (side, side, 3)).float()
    encoded = vq.encode(picture.permute(2, 0, 1)[None]).image_tokens
    recorded = {"prompt": ints(prompt), "other": ints([begin, image]), "tokens": ints(tokens), "codes": ints(codes),
                "encoded": encoded.int().flatten(),
                "pixels": decoder(torch.tensor(codes), GRID, GRID)[0].permute(1, 2, 0)}
    for branch, ids in (("cond", prompt), ("uncond", [begin, image])):
        record_branch(reference, branch, ids + tokens[:-1], recorded)
    if name == "plain":
        columns, rows = WIDTH // 2, HEIGHT // 2
        sizes = [image, words[f"<reserved{8800 + HEIGHT // 4:05d}>"], words[f"<reserved{8800 + WIDTH // 4:05d}>"]]
        ids = [begin] + core.encode(LUMINA).ids + [turn] + sizes
        length = rows * (columns + 1) + 1

        def forced(position):
            if position == length - 1:
                return "<eoss>"
            return "<reserved08799>" if (position + 1) % (columns + 1) == 0 else None

        stream, lumina = reference.greedy(ids, sizes, length, 4.0, forced)
        recorded |= {"lumina.prompt": ints(ids), "lumina.other": ints(sizes), "lumina.tokens": ints(stream),
                     "lumina.codes": ints(lumina),
                     "lumina.pixels": decoder(torch.tensor(lumina), rows, columns)[0].permute(1, 2, 0)}
        # A question after which an image stands between texts.
        for word in [a + b for a in "abcdefgh" for b in "klmnopqr"]:
            question = [begin] + core.encode(word).ids + [turn]
            answer, pictures = mixed_answer(reference, question, 1)
            place = answer.index(image) if image in answer else 0
            if pictures and 2 <= place and len(answer) > place + GRID * GRID + 5:
                break
        assert pictures, "no question asks for an image"
        print("mixed", word, len(answer), "place", place)
        recorded |= {"mixed.prompt": ints(question), "mixed.ids": ints(answer), "mixed.codes": ints(pictures[0]),
                     "mixed.question": torch.tensor(list(word.encode()), dtype=torch.int32)}
    print(name, "smallest gap", reference.gap, "codes", codes, "encoded", len(set(encoded.tolist())), "kinds")
    folder = OUT / name
    save(folder, recorded, "recorded")
    save_folder(model, core, words, folder)
    if name == "swin":
        save_authors(model, reference, prompt, tokens)


def main():
    torch.set_num_threads(1)
    for name, spec in CONFIGS.items():
        make(name, spec)


if __name__ == "__main__":
    main()
