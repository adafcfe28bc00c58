"""A LoRA adapter on GSM8K in XML, as the guides to GRPO with TRL have it: three rewards, prompts as chat messages.

    python examples/gsm8k_lora_xml.py OUT [MODEL] [PROBLEMS] [VOCABULARY]

MODEL is a hub name or a folder; PROBLEMS a hub name or a JSONL file with `question` and `answer`; VOCABULARY how many
reasoning tokens to add, none unless it is given. It is TRL's own script with another import.
"""

import re
import sys

import torch
from datasets import Dataset, load_dataset
from peft import LoraConfig
from transformers import AutoTokenizer

from rlvr_vocab import GRPOConfig, RegionGRPOTrainer

SYSTEM_PROMPT = """Respond in the following format:
<reasoning>
[Your step-by-step thinking]
</reasoning>
<answer>
[Final answer]
</answer>
"""
TAGS = ("<reasoning>", "</reasoning>", "<answer>", "</answer>")


def get_dataset(name: str) -> Dataset:
    """Prompts as messages, and the number behind `####` as the answer."""
    if name.endswith(".jsonl"):
        rows = load_dataset("json", data_files=name, split="train")
    else:
        rows = load_dataset(name, "main", split="train")
    return rows.map(
        lambda row: {
            "prompt": [
                {"role": "system", "content": SYSTEM_PROMPT},
                {"role": "user", "content": row["question"]},
            ],
            "answer": row["answer"].rpartition("####")[2].strip().replace(",", ""),
        }
    )


def texts(completions):
    return [completion[0]["content"] for completion in completions]


def correctness_reward(prompts, completions, answer, **kwargs):
    """2 for the right answer."""
    given = [text.rpartition("<answer>")[2].partition("</answer>")[0].strip() for text in texts(completions)]
    return [2.0 if one == gold else 0.0 for one, gold in zip(given, answer, strict=True)]


def format_reward(completions, **kwargs):
    """1 for the two elements, wherever they stand."""
    pattern = re.compile(r"<reasoning>.*?</reasoning>\s*<answer>.*?</answer>", re.DOTALL)
    return [1.0 if pattern.search(text) else 0.0 for text in texts(completions)]


def incremental_format_reward(completions, **kwargs):
    """A quarter for each tag, less what follows the end."""
    scores = []
    for text in texts(completions):
        score = sum(0.25 for tag in TAGS if tag in text)
        if text.count("</answer>") == 1:
            score -= 0.001 * len(text.split("</answer>")[-1].strip())
        scores.append(score)
    return scores


def main(out: str, model: str = "Qwen/Qwen2.5-1.5B-Instruct", problems: str = "openai/gsm8k", size: str = "0") -> None:
    on_gpu = torch.cuda.is_available()
    training_args = GRPOConfig(
        output_dir=out,
        learning_rate=5e-6,
        adam_beta1=0.9,
        adam_beta2=0.99,
        weight_decay=0.1,
        warmup_ratio=0.1,
        lr_scheduler_type="cosine",
        per_device_train_batch_size=8,
        gradient_accumulation_steps=1,
        num_generations=8,
        max_prompt_length=256,
        max_completion_length=512 if on_gpu else 16,
        max_steps=-1 if on_gpu else 2,  # on a CPU: to see that it runs
        bf16=on_gpu,
        max_grad_norm=0.1,
        logging_steps=1,
        save_steps=100,
        report_to="none",
    )
    trainer = RegionGRPOTrainer(
        model=model,
        processing_class=AutoTokenizer.from_pretrained(model),
        reward_funcs=[incremental_format_reward, format_reward, correctness_reward],
        args=training_args,
        train_dataset=get_dataset(problems),
        peft_config=LoraConfig(
            r=16, lora_alpha=32, lora_dropout=0.05, target_modules="all-linear", task_type="CAUSAL_LM"
        ),
        reasoning_vocab_size=int(size),
    )
    trainer.train()
    trainer.save_model(f"{out}/final_adapter")


if __name__ == "__main__":
    main(*sys.argv[1:])
