"""Measures vLLM: peer_worker_vllm.py DIR, a checkpoint. Runs in build/peers/vllm
(tools/compare_peers.py starts it)."""

from vllm import LLM, SamplingParams

import peer_worker


def load(arguments):
    llm = LLM(model=arguments[0], dtype="bfloat16", max_model_len=4096, max_num_seqs=16,
              max_num_batched_tokens=4096, enable_prefix_caching=False, disable_log_stats=True)

    def generate(prompts, new):
        params = SamplingParams(max_tokens=new, ignore_eos=True, temperature=0, detokenize=False)
        outputs = llm.generate([{"prompt_token_ids": ids} for ids in prompts], params,
                               use_tqdm=False)
        assert all(len(output.outputs[0].token_ids) == new for output in outputs)

    return generate


if __name__ == "__main__":
    peer_worker.run(load)
