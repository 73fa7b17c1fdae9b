"""How GGUF files hold a language model otherwise than a folder does."""
import numpy as np
import torch

LAYERS = {"attn_norm": "input_layernorm", "attn_q": "self_attn.q_proj", "attn_k": "self_attn.k_proj",
          "attn_v": "self_attn.v_proj", "attn_output": "self_attn.o_proj", "attn_q_norm": "self_attn.q_norm",
          "attn_k_norm": "self_attn.k_norm", "ffn_norm": "post_attention_layernorm",
          "ffn_gate": "mlp.gate_proj", "ffn_up": "mlp.up_proj", "ffn_down": "mlp.down_proj"}


def paired(rows, heads):
    """Halves of each head become pairs of neighbours."""
    return rows.reshape(heads, 2, rows.shape[0] // heads // 2, *rows.shape[1:]).swapaxes(1, 2).reshape(rows.shape)


def llama3_divisors(config, head):
    pairs = torch.arange(0, head, 2, dtype=torch.float32) / head
    turns = 1.0 / (config["rope_theta"] ** pairs)
    rope, out = config["rope_scaling"], []
    low = rope["original_max_position_embeddings"] / rope["low_freq_factor"]
    high = rope["original_max_position_embeddings"] / rope["high_freq_factor"]
    for turn in turns:
        length = 2 * np.pi / turn
        if length < high:
            out.append(1.0)
        elif length > low:
            out.append(rope["factor"])
        else:
            share = (rope["original_max_position_embeddings"] / length - rope["low_freq_factor"]) / (
                rope["high_freq_factor"] - rope["low_freq_factor"])
            out.append(1 / ((1 - share) / rope["factor"] + share))
    return np.array(out, dtype=np.float32)
