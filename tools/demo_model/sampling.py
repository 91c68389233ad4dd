"""Batched generation from an exported folder with transformers, in float32 (the stored BF16
weights widened)."""

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

import special_tokens as special


class Demo:
    def __init__(self, folder):
        self.model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
        self.tokenizer = AutoTokenizer.from_pretrained(folder)
        self.context = self.model.config.max_position_embeddings

    def chat_ids(self, messages):
        text = self.tokenizer.apply_chat_template(messages, tokenize=False,
                                                  add_generation_prompt=True)
        return self.tokenizer(text, add_special_tokens=False)["input_ids"]

    @torch.no_grad()
    def continue_all(self, prompts, limit, temperature=0.0, seed=0, batch=32):
        """Continues lists of ids; returns lists of new ids without the end token."""
        torch.manual_seed(seed)
        order = sorted(range(len(prompts)), key=lambda i: len(prompts[i]))
        results = [None] * len(prompts)
        how = ({"do_sample": True, "temperature": temperature, "top_k": 0, "top_p": 1.0}
               if temperature > 0 else {"do_sample": False, "temperature": None, "top_p": None})
        for start in range(0, len(order), batch):
            chosen = order[start:start + batch]
            width = max(len(prompts[i]) for i in chosen)
            ids = torch.tensor([[special.PAD] * (width - len(prompts[i])) + prompts[i]
                                for i in chosen])
            mask = torch.tensor([[0] * (width - len(prompts[i])) + [1] * len(prompts[i])
                                 for i in chosen])
            out = self.model.generate(input_ids=ids, attention_mask=mask,
                                      max_new_tokens=min(limit, self.context - width), **how)
            for row, i in enumerate(chosen):
                new = out[row, width:].tolist()
                ends = [k for k, token in enumerate(new)
                        if token in (special.EOS, special.END, special.PAD)]
                results[i] = new[:ends[0]] if ends else new
        return results

    def text(self, ids):
        return self.tokenizer.decode(ids, skip_special_tokens=True)

    def answer_all(self, conversations, limit=96, **how):
        """The text of the next assistant turn of each conversation."""
        prompts = [self.chat_ids(messages) for messages in conversations]
        return [self.text(ids).strip() for ids in self.continue_all(prompts, limit, **how)]
