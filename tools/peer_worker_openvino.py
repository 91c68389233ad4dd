"""Measures OpenVINO GenAI: peer_worker_openvino.py DIR, a checkpoint that optimum-intel converted.
Runs in build/peers/openvino (tools/compare_peers.py starts it)."""

import numpy
import openvino
import openvino_genai

import peer_worker


def load(arguments):
    scheduler = openvino_genai.SchedulerConfig()
    scheduler.cache_size = 2  # GiB
    scheduler.max_num_seqs = 16
    # A prompt is computed whole: the default of 256 tokens a step is slower.
    scheduler.max_num_batched_tokens = 4096
    scheduler.enable_prefix_caching = False
    pipeline = openvino_genai.ContinuousBatchingPipeline(arguments[0], scheduler, "CPU")

    def generate(prompts, new):
        config = openvino_genai.GenerationConfig()
        config.max_new_tokens = new
        config.ignore_eos = True
        config.do_sample = False
        inputs = [openvino.Tensor(numpy.array([ids], dtype=numpy.int64)) for ids in prompts]
        for result in pipeline.generate(inputs, [config] * len(inputs)):
            assert len(result.m_generation_ids[0]) == new

    return generate


if __name__ == "__main__":
    peer_worker.run(load)
