"""A plain Llama decoder for training: the same numbers and the same weight names as the
`LlamaForCausalLM` of transformers (export.py compares the two)."""

import dataclasses

import torch
from torch import nn
from torch.nn import functional as F


@dataclasses.dataclass(frozen=True)
class Config:
    vocab_size: int = 3072
    hidden_size: int = 192
    intermediate_size: int = 512
    num_hidden_layers: int = 4
    num_attention_heads: int = 6
    num_key_value_heads: int = 2
    head_dim: int = 32
    max_position_embeddings: int = 2048
    rope_theta: float = 10000.0
    rms_norm_eps: float = 1e-5


class RmsNorm(nn.Module):
    def __init__(self, size, eps):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(size))
        self.eps = eps

    def forward(self, x):
        wide = x if x.dtype == torch.float64 else x.float()
        normal = wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + self.eps)
        return self.weight * normal.to(x.dtype)


def rope_table(config, length):
    """cos and sin, each [length, head_dim]; both halves of a head share their angles."""
    exponent = torch.arange(0, config.head_dim, 2).float() / config.head_dim
    angles = torch.outer(torch.arange(length).float(), config.rope_theta ** -exponent)
    angles = torch.cat((angles, angles), dim=-1)
    return angles.cos(), angles.sin()


def rotate(x, cos, sin):
    half = x.shape[-1] // 2
    return x * cos + torch.cat((-x[..., half:], x[..., :half]), dim=-1) * sin


class Attention(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.config = config
        queries = config.num_attention_heads * config.head_dim
        keys = config.num_key_value_heads * config.head_dim
        self.q_proj = nn.Linear(config.hidden_size, queries, bias=False)
        self.k_proj = nn.Linear(config.hidden_size, keys, bias=False)
        self.v_proj = nn.Linear(config.hidden_size, keys, bias=False)
        self.o_proj = nn.Linear(queries, config.hidden_size, bias=False)

    def start_as_copier(self, strength):
        size = self.config.head_dim
        group = self.config.num_attention_heads // self.config.num_key_value_heads
        for head in range(self.config.num_attention_heads):
            mine = slice(head * size, (head + 1) * size)
            shared = slice(head // group * size, (head // group + 1) * size)
            alike = 0.6 * (1 - (head % group) / group)
            self.q_proj.weight[mine] *= (1 - alike ** 2) ** 0.5
            self.q_proj.weight[mine] += alike * self.k_proj.weight[shared]
            self.o_proj.weight[:, mine] = strength * self.v_proj.weight[shared].t()

    def forward(self, x, cos, sin):
        rows, length, _ = x.shape
        c = self.config

        def heads(y, count):
            return y.view(rows, length, count, c.head_dim).transpose(1, 2)

        q = rotate(heads(self.q_proj(x), c.num_attention_heads), cos, sin)
        k = rotate(heads(self.k_proj(x), c.num_key_value_heads), cos, sin)
        v = heads(self.v_proj(x), c.num_key_value_heads)
        group = c.num_attention_heads // c.num_key_value_heads
        k, v = k.repeat_interleave(group, 1), v.repeat_interleave(group, 1)
        y = F.scaled_dot_product_attention(q.to(v.dtype), k.to(v.dtype), v, is_causal=True)
        return self.o_proj(y.transpose(1, 2).reshape(rows, length, -1))


class Mlp(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.gate_proj = nn.Linear(config.hidden_size, config.intermediate_size, bias=False)
        self.up_proj = nn.Linear(config.hidden_size, config.intermediate_size, bias=False)
        self.down_proj = nn.Linear(config.intermediate_size, config.hidden_size, bias=False)

    def forward(self, x):
        return self.down_proj(F.silu(self.gate_proj(x)) * self.up_proj(x))


class Layer(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.input_layernorm = RmsNorm(config.hidden_size, config.rms_norm_eps)
        self.self_attn = Attention(config)
        self.post_attention_layernorm = RmsNorm(config.hidden_size, config.rms_norm_eps)
        self.mlp = Mlp(config)

    def forward(self, x, cos, sin):
        x = x + self.self_attn(self.input_layernorm(x), cos, sin)
        return x + self.mlp(self.post_attention_layernorm(x))


class Llama(nn.Module):
    """Tied embeddings: the output matrix is `embed_tokens`."""

    def __init__(self, config):
        super().__init__()
        self.config = config
        self.embed_tokens = nn.Embedding(config.vocab_size, config.hidden_size)
        self.layers = nn.ModuleList(Layer(config) for _ in range(config.num_hidden_layers))
        self.norm = RmsNorm(config.hidden_size, config.rms_norm_eps)
        cos, sin = rope_table(config, config.max_position_embeddings)
        self.register_buffer("cos", cos, persistent=False)
        self.register_buffer("sin", sin, persistent=False)
        self._initialise()

    def _initialise(self):
        """Initial weights from which the model learns early to copy names of a story.

        Embeddings start larger than the layers' outputs, so that later layers still see the tokens.
        (From the usual 0.02 the first MLP drowns them, and names are not copied after a million
        tokens.) The last norm starts small, to keep the tied logits small. With W_O = W_V^T a head
        starts by copying the tokens that it attends to. With W_Q partly equal to W_K it starts by
        attending to tokens that are similar to the present one.
        """
        for name, weight in self.named_parameters():
            if weight.dim() == 2:
                nn.init.normal_(weight, std=0.3 if "embed" in name else weight.shape[1] ** -0.5)
        with torch.no_grad():
            for layer in self.layers:
                layer.mlp.down_proj.weight.mul_(0.2)
                layer.self_attn.start_as_copier(0.2)
            self.norm.weight.fill_(0.1)

    def hidden(self, ids):
        x = self.embed_tokens(ids)
        cos, sin = self.cos[:ids.shape[1]], self.sin[:ids.shape[1]]
        for layer in self.layers:
            x = layer(x, cos, sin)
        return self.norm(x)

    def forward(self, ids):
        return self.hidden(ids) @ self.embed_tokens.weight.t()

    def losses(self, ids, targets):
        """The losses at the taught positions, [taught]; only these get logits."""
        taught = targets != -100
        logits = self.hidden(ids)[taught] @ self.embed_tokens.weight.t()
        return F.cross_entropy(logits.float(), targets[taught], reduction="none")
