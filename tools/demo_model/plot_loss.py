"""Draws the loss curve of a training log."""

import argparse
import json

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import numpy as np


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("log")
    parser.add_argument("output")
    options = parser.parse_args()
    with open(options.log, encoding="utf-8") as file:
        entries = [json.loads(line) for line in file]
    tokens = np.array([e["tokens"] for e in entries]) / 1e6
    loss = np.array([e["loss"] for e in entries])
    window = min(25, len(loss))
    smooth = np.convolve(loss, np.ones(window) / window, mode="valid")
    held = [(e["tokens"] / 1e6, e["heldout"]) for e in entries if "heldout" in e]
    figure, axes = plt.subplots(figsize=(8, 4.5), dpi=110)
    axes.plot(tokens, loss, color="#c5d5e8", linewidth=0.5, label="training, each step")
    axes.plot(tokens[window - 1:], smooth, color="#1f5fa8",
              label=f"training, mean of {window} steps")
    axes.plot(*zip(*held), "o-", color="#d9541e", markersize=3, label="held-out documents")
    axes.set(xlabel="training tokens, millions", ylabel="loss per taught token, nats",
             title="Demo model: every training token is new text", ylim=(min(loss) * 0.9, 5))
    axes.grid(alpha=0.3)
    axes.legend()
    figure.tight_layout()
    figure.savefig(options.output, metadata={"Software": None})
    print(f"{len(entries)} steps, {tokens[-1]:.2f} M tokens, last held-out loss {held[-1][1]:.4f}")


if __name__ == "__main__":
    main()
