"""Parity fixture for the Janus family, made by `transformers` on a tiny configuration.

Every parameter is randomised. Computation is fp32 on the CPU with eager attention. Writes
tests/golden/janus/: the checkpoint folder in the layout of the Hugging Face port, the names of the
same weights in the original layout with their configuration, and recorded.safetensors with inputs
and outputs: hidden states of every layer, text logits, picture logits over the steps of a guided
greedy run (guidance 5, pads attended), its tokens, the decoded pixels, and picture codes of one
encoded image under the original's rule (unit-length latents, which the port forgets).

  python assets/recipes/fixtures_janus.py
"""
import json
from pathlib import Path

import torch
import torch.nn.functional as F
from safetensors.torch import save_file
from transformers import (JanusConfig, JanusForConditionalGeneration, JanusVisionConfig,
                          JanusVQVAEConfig, LlamaConfig)

OUT = Path(__file__).resolve().parents[2] / "tests" / "golden" / "janus"
BOS, PAD, BOI = 1, 2, 5
GUIDANCE = 5.0
HIDDEN, GRID = 32, 5


def config():
    text = LlamaConfig(vocab_size=99, hidden_size=HIDDEN, intermediate_size=48, num_hidden_layers=2,
                       num_attention_heads=4, num_key_value_heads=2, max_position_embeddings=128,
                       rms_norm_eps=1e-6, tie_word_embeddings=False, bos_token_id=BOS,
                       eos_token_id=3, pad_token_id=PAD)
    vision = JanusVisionConfig(hidden_size=16, num_hidden_layers=2, num_attention_heads=4,
                               image_size=2 * GRID, patch_size=2, projection_dim=HIDDEN,
                               num_image_tokens=GRID * GRID, mlp_ratio=2.0)
    vq = JanusVQVAEConfig(base_channels=32, channel_multiplier=[1, 1], num_res_blocks=1,
                          latent_channels=16, embed_dim=8, num_embeddings=64,
                          num_patches=GRID, projection_dim=HIDDEN, image_token_embed_dim=HIDDEN)
    return JanusConfig(text_config=text, vision_config=vision, vq_config=vq, image_token_id=98,
                       tie_word_embeddings=False)


def randomise(model):
    """Weights of a scale that keeps activations alive; VQ weights are bf16 numbers, to save bytes."""
    generator = torch.Generator().manual_seed(20240317)
    with torch.no_grad():
        for name, p in sorted(model.named_parameters()):
            noise = torch.randn(p.shape, generator=generator)
            if p.dim() < 2:
                p.copy_(1 + 0.3 * noise if name.endswith("weight") else 0.3 * noise)
            elif "embed" in name:
                p.copy_(noise)
            else:
                p.copy_(noise * (1.2 / p[0].numel() ** 0.5))
            if ".vqmodel." in name:
                p.copy_(p.bfloat16().float())


def original_names(state):
    """port name -> original name; the vision tower's q, k, v are fused there: a list of names."""
    names = {}
    for name in state:
        n = name
        n = n.replace("model.vqmodel.", "gen_vision_model.")
        if n.startswith("gen_vision_model."):
            n = n.replace("encoder.down.", "encoder.conv_blocks.")
            n = n.replace("decoder.up.", "decoder.conv_blocks.")
            n = n.replace(".block.", ".res.")
            for new, old in enumerate(("block_1", "attn_1", "block_2")):
                n = n.replace(f".mid.{old}.", f".mid.{new}.")
        n = n.replace("model.language_model.", "language_model.model.")
        n = n.replace("lm_head.", "language_model.lm_head.") if n.startswith("lm_head") else n
        n = n.replace("model.generation_embeddings.", "gen_embed.")
        n = n.replace("model.generation_aligner.fc1.", "gen_aligner.layers.0.")
        n = n.replace("model.generation_aligner.hidden_layers.0.", "gen_aligner.layers.2.")
        n = n.replace("model.generation_head.proj_out.", "gen_head.output_mlp_projector.")
        n = n.replace("model.generation_head.vision_head.", "gen_head.vision_head.")
        n = n.replace("model.aligner.fc1.", "aligner.layers.0.")
        n = n.replace("model.aligner.hidden_layers.0.", "aligner.layers.2.")
        n = n.replace("model.vision_model.", "vision_model.vision_tower.")
        n = n.replace("embeddings.patch_embedding.", "patch_embed.proj.")
        n = n.replace("embeddings.position_embedding.weight", "pos_embed")
        n = n.replace("encoder.layers.", "blocks.") if "vision_tower" in n else n
        n = n.replace("post_layernorm.", "norm.").replace("layer_norm", "norm")
        n = n.replace("self_attn.projection_layer.", "attn.proj.")
        for part in ("q", "k", "v"):
            if "vision_tower" in n:
                n = n.replace(f"self_attn.{part}_proj.", "attn.qkv.")
        names.setdefault(n, []).append(name)
    return {n: sorted(sources, key=lambda s: "qkv".find(s.split("_proj")[0][-1]))
            for n, sources in names.items()}


def original_config(c):
    t = c.text_config
    return {
        "model_type": "multi_modality",
        "language_config": {
            "model_type": "llama", "hidden_size": HIDDEN, "intermediate_size": t.intermediate_size,
            "num_hidden_layers": t.num_hidden_layers, "num_attention_heads": t.num_attention_heads,
            "num_key_value_heads": t.num_key_value_heads, "vocab_size": t.vocab_size,
            "max_position_embeddings": t.max_position_embeddings},
        "vision_config": {"cls": "CLIPVisionTower", "model_type": "vision", "params": {
            "image_size": 2 * GRID, "model_name": "tiny", "width": 16, "layers": 2, "patch_size": 2,
            "mlp_width": 32, "select_feature": "same", "select_layer": -1}},
        "aligner_config": {"cls": "MlpProjector", "params": {
            "depth": 2, "input_dim": 16, "n_embed": HIDDEN, "projector_type": "mlp_gelu"}},
        "gen_vision_config": {"cls": "VQ-16", "params": {
            "image_token_size": 64, "n_embed": 8, "base_channels": 32, "encoder_ch_mult": [1, 1],
            "num_res_blocks": 1, "z_channels": 16}},
        "gen_aligner_config": {"cls": "MlpProjector", "params": {
            "depth": 2, "input_dim": 8, "n_embed": HIDDEN, "projector_type": "mlp_gelu"}},
        "gen_head_config": {"cls": "vision_head", "params": {
            "image_token_embed": HIDDEN, "image_token_size": 64, "n_embed": HIDDEN}},
    }


def run_hidden(lm, rows):
    """[B, T, D] embeddings -> (inputs of every layer, states after the final norm)"""
    out = lm(inputs_embeds=rows, use_cache=False, output_hidden_states=True)
    return list(out.hidden_states[:-1]), out.last_hidden_state


def guided_run(model, prompt, steps):
    """Full recomputation at every step: no cache that could hide a fault of a cache."""
    lm, core = model.model.language_model, model.model
    uncond = [t if t in (BOS, BOI) else PAD for t in prompt]
    rows = lm.embed_tokens(torch.tensor([prompt, uncond]))
    tokens, head_logits, guided_logits, next_rows = [], [], [], []
    for _ in range(steps):
        _, hidden = run_hidden(lm, rows)
        logits = core.generation_head(hidden[:, -1])
        guided = logits[1] + GUIDANCE * (logits[0] - logits[1])
        token = int(guided.argmax())
        step = model.prepare_embeddings_for_image_generation(torch.tensor([[token], [token]]))
        rows = torch.cat((rows, step), 1)
        tokens.append(token)
        head_logits.append(logits)
        guided_logits.append(guided)
        next_rows.append(step[0, 0])
    return uncond, tokens, torch.stack(head_logits), torch.stack(guided_logits), torch.stack(next_rows)


def encode_original(vq, pixels):
    """The original encoder's rule: unit vectors on both sides before the nearest code is sought."""
    z = vq.quant_conv(vq.encoder(pixels)).permute(0, 2, 3, 1).flatten(0, 2)
    z = F.normalize(z, dim=-1, eps=1e-12)
    e = F.normalize(vq.quantize.embedding.weight, dim=-1, eps=1e-12)
    distance = (z**2).sum(1, keepdim=True) + (e**2).sum(1) - 2 * z @ e.t()
    return distance.argmin(1), z


@torch.no_grad()
def main():
    torch.manual_seed(0)
    torch.set_num_threads(1)
    c = config()
    c._attn_implementation = "eager"
    model = JanusForConditionalGeneration(c).eval().float()
    model.set_attn_implementation("eager")
    randomise(model)
    lm = model.model.language_model

    prompt = [BOS, 17, 42, 63, 8, 77, 30, BOI]
    uncond, tokens, head, guided, rows = guided_run(model, prompt, GRID * GRID)
    layers, final = run_hidden(lm, lm.embed_tokens(torch.tensor([prompt, uncond])))

    # The class's own loop, with its cache, must agree with the recomputation above.
    model.generation_config.update(guidance_scale=GUIDANCE, do_sample=False, bos_token_id=BOS,
                                   pad_token_id=PAD)
    model.generation_config.generation_kwargs = {"boi_token_id": BOI}
    ids = torch.tensor([prompt])
    theirs = model.generate(inputs=ids, attention_mask=torch.ones_like(ids),
                            generation_mode="image")
    assert theirs[0].tolist() == tokens, (theirs[0].tolist(), tokens)
    gaps = guided.topk(2, dim=-1).values
    print("tokens", tokens, "smallest gap", float((gaps[:, 0] - gaps[:, 1]).min()))

    pixels = model.model.vqmodel.decode(torch.tensor([tokens]))[0].permute(1, 2, 0)
    image = torch.randn(1, 3, 2 * GRID, 2 * GRID, generator=torch.Generator().manual_seed(5)).clamp(-1, 1)
    codes, latents = encode_original(model.model.vqmodel, image)

    recorded = {
        "prompt": torch.tensor(prompt, dtype=torch.int32),
        "uncond": torch.tensor(uncond, dtype=torch.int32),
        "tokens": torch.tensor(tokens, dtype=torch.int32),
        "hidden.final": final,
        "text_logits": model.lm_head(final),
        "head_logits": head,
        "guided_logits": guided,
        "token_rows": rows,
        "pixels": pixels,
        "encode.image": image[0].permute(1, 2, 0),
        "encode.latents": latents,
        "encode.codes": codes.to(torch.int32),
    }
    for i, states in enumerate(layers):
        recorded[f"hidden.{i}"] = states
    folder = OUT / "checkpoint"
    folder.mkdir(parents=True, exist_ok=True)
    state = {k: v.contiguous().clone() for k, v in model.state_dict().items()}
    for name in state:
        if ".vqmodel." in name:
            state[name] = state[name].bfloat16()
    save_file(state, folder / "model.safetensors", {"format": "pt"})
    text = json.loads(c.to_json_string(use_diff=False))
    (folder / "config.json").write_text(json.dumps(text, indent=1, sort_keys=True) + "\n")
    (folder / "generation_config.json").write_text(json.dumps(
        {"guidance_scale": GUIDANCE, "temperature": 1.0, "pad_token_id": PAD}, indent=1) + "\n")
    (OUT / "original_config.json").write_text(json.dumps(original_config(c), indent=1) + "\n")
    (OUT / "original_names.json").write_text(json.dumps(original_names(state), indent=0) + "\n")
    save_file({k: v.contiguous().clone() for k, v in recorded.items()}, OUT / "recorded.safetensors")


if __name__ == "__main__":
    main()
