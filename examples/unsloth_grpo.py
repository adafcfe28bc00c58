"""GRPO of a LoRA adapter with Unsloth's kernels, in TRL's own trainer, with this package's verifier as the reward.

    python examples/unsloth_grpo.py OUT [MODEL]

Written for Unsloth 2026.10.9, which declares trl<=1.15 and transformers<=5.17, and for a CUDA GPU. Not run here: this
package's own trainer needs TRL 1.16, so the script needs an environment of its own (docs/lora.md#unsloth). There is no
region policy in it and no reasoning vocabulary.
"""

import sys

from unsloth import FastLanguageModel  # isort: skip  # before transformers, peft and trl, whose classes it replaces

from datasets import Dataset, load_dataset
from trl import GRPOConfig, GRPOTrainer

from rlvr_vocab.rewards.library.answers import accuracy

SYSTEM_PROMPT = r"Think step by step. Put the final answer in \boxed{}."
LONGEST_PROMPT, LONGEST_COMPLETION = 256, 768


def get_dataset() -> Dataset:
    """GSM8K as chat messages; `solution` is the number behind `####`."""
    return load_dataset("openai/gsm8k", "main", split="train").map(
        lambda row: {
            "prompt": [
                {"role": "system", "content": SYSTEM_PROMPT},
                {"role": "user", "content": row["question"]},
            ],
            "solution": row["answer"].rpartition("####")[2].strip().replace(",", ""),
        }
    )


def main(out: str, name: str = "Qwen/Qwen2.5-1.5B-Instruct") -> None:
    model, tokenizer = FastLanguageModel.from_pretrained(
        model_name=name,
        max_seq_length=LONGEST_PROMPT + LONGEST_COMPLETION,
        load_in_4bit=True,
        fast_inference=False,  # True: Unsloth's vLLM engine; then set use_vllm=True below as well
        max_lora_rank=32,
    )
    model = FastLanguageModel.get_peft_model(
        model,
        r=32,
        target_modules=["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"],
        lora_alpha=32,
        use_gradient_checkpointing="unsloth",
    )
    trainer = GRPOTrainer(
        model=model,
        processing_class=tokenizer,
        reward_funcs=[accuracy],
        args=GRPOConfig(
            output_dir=out,
            learning_rate=5e-6,
            per_device_train_batch_size=8,
            num_generations=8,
            max_completion_length=LONGEST_COMPLETION,
            max_steps=250,
            logging_steps=1,
            report_to="none",
        ),
        train_dataset=get_dataset(),
    )
    trainer.train()
    trainer.save_model(f"{out}/final_adapter")


if __name__ == "__main__":
    main(*sys.argv[1:])
