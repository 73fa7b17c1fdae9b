"""Prompts with images for releases of Chameleon's authors, with what their own code makes of them.

As fixtures_authors_chameleon.py, whose releases these are, in the sizes of their code: images of 512 x 512 pixels have
1024 codes. An image's ids, the greedy text that describes it, and the first codes of an image that follows it: three
branches guide those. Texts go without a repetition penalty, as the port's class writes them.

  python fixtures_authors_chameleon_images.py CHAMELEON SCRATCH COUNT    # tests/golden/authors_chameleon/images
"""
import json
import random
import sys
from pathlib import Path

import torch
import transformers

sys.path.insert(0, str(Path(__file__).resolve().parent))
import fixtures_authors_chameleon as fc  # noqa: E402
import fixtures_folders as ff  # noqa: E402
from fixtures_authors_chameleon import chameleon  # noqa: E402
from folder_draws import one  # noqa: E402

QUESTIONS = ["What is this?", "a dog, \"here\"", " two\nlines ", "\u00e9t\u00e9 \u732b"]
CODES_AFTER, TEXT = 24, 12


def draw(number):
    r = random.Random(f"authors chameleon images {number}")
    spec = fc.draw(number)
    spec["model"]["dim"] = 32
    spec.update(levels=[1, 1, 1, 1, 1], grid=32, blocks=1, latent=8, question=QUESTIONS[number % len(QUESTIONS)],
                image=[r.randint(20, 90), r.randint(20, 90), 100 + number], guidance=one(r, 3.0, 1.5, 5.0))
    return spec


def branches_of(generator, pad):
    rows = generator.dyngen.gen.gen._original_inputs.tolist()
    return [[i for i in row if i != pad] for row in rows]


@torch.no_grad()
def run_one(folder):
    spec = json.loads((folder / "spec.json").read_text())
    place = folder / "tokenizer"
    torch.save({"state_dict": {}}, place / "vqgan.ckpt")
    manager = chameleon.TokenManager(str(place / "text_tokenizer.json"), str(place / "vqgan.yaml"), str(place / "vqgan.ckpt"))
    vq, model = manager.image_tokenizer._vq_model, fc.transformer(folder)
    shapes = fc.plain_shapes(model)
    vq_shapes = {k: list(v.shape) for k, v in vq.state_dict().items()}
    image = ff.drawn_image(*spec["image"])
    guide = chameleon.Options.Image.CFG(guidance_scale_text=spec["guidance"])
    texts = chameleon.Options(txt=chameleon.Options.Text(repetition_penalty=1.0, greedy=True), max_gen_len=TEXT)
    images = chameleon.Options(txt=False, img=chameleon.Options.Image(cfg=guide, greedy=True))
    for salt in range(fc.SALTS):
        weights = {k: ff.weight(salt, k, s) for k, s in shapes.items()}
        vq_weights = {k: ff.weight(salt, k, s) for k, s in vq_shapes.items()}
        model.load_state_dict(dict(weights))
        vq.load_state_dict(vq_weights)
        prompt = manager.tokens_from_ui([{"type": "image", "value": image}, {"type": "text", "value": spec["question"]},
                                         {"type": "sentinel", "value": "<END-OF-TURN>"}])
        seen = prompt[2:2 + 1024]
        if len(set(seen)) < 8:
            continue
        text, leads = [], []
        with torch.inference_mode():
            for token in chameleon.Generator(model, manager.vocab, texts, [list(prompt)]):
                best = token.logits[0].topk(2).values
                leads.append(float(best[0] - best[1]))
                text.append(int(token.id[0]))
            generator = chameleon.Generator(model, manager.vocab, images, [list(prompt)])
            branches, tokens = branches_of(generator, manager.vocab.pad_id), []
            for _ in range(CODES_AFTER):
                token = next(generator)
                best = token.logits[0].topk(2).values
                leads.append(float(best[0] - best[1]) * images.img.temp)
                tokens.append(int(token.id[0]))
        if min(leads) >= fc.LEAST_GAP and len(set(tokens)) >= 3 and len(set(text)) >= 3:
            break
    else:
        raise ValueError("no weights keep the greedy tokens apart")
    if text[-1] == manager.vocab.eos_id:
        text.pop()
    whole, first, other = branches
    assert whole[:-1] == prompt and len(first) == 1024 + 4 and len(other) == 2
    code = manager.translation.bpe2img
    return {"name": folder.name, "question": spec["question"], "image": spec["image"], "guidance": spec["guidance"],
            "weights": "consolidated.safetensors", "vq_weights": "tokenizer/vqgan.safetensors", "salt": salt,
            "codes": [code[i] for i in seen], "ids": ff.run_lengths(prompt), "images": ff.run_lengths(first), "greedy": text,
            "after": [code[i] for i in tokens], "shapes": shapes, "vq_shapes": vq_shapes}


def main():
    torch.set_num_threads(1)
    transformers.logging.set_verbosity_error()
    fc.on_the_cpu()
    scratch = Path(sys.argv[2])
    for number in range(int(sys.argv[3])):
        folder = scratch / f"chameleon-{number}"
        spec = draw(number)
        fc.save(folder, spec)
        (folder / "spec.json").write_text(json.dumps(spec))
        (folder / "shapes.json").write_text("{}")
    ff.write_corpus(scratch, fc.OUT / "images", run_one, in_parts=True)


if __name__ == "__main__":
    main()
