/* examples.c - see examples.h. A few per verb, the plainest first. */
#include "cli/examples.h"

const example examples[] = {
    {VERB_RUN, "tern run Qwen2.5-0.5B \"Why is the sky blue?\"",
     "one answer of a model in the cache, named by a part of its id"},
    {VERB_RUN, "tern run model.gguf - < question.txt", "a GGUF file, and the prompt from stdin"},
    {VERB_RUN, "tern run MODEL --temp 0.7 --seed 1 --stats \"A poem.\"",
     "drawn at random, and speed and memory afterwards"},
    {VERB_CHAT, "tern chat", "with the only model that is here"},
    {VERB_CHAT, "tern chat MODEL --system \"Answer in French.\"", "with a system message"},
    {VERB_SERVE, "tern serve MODEL", "http://127.0.0.1:8080/v1, as OpenAI's clients want it"},
    {VERB_SERVE, "tern serve MODEL --port 11434 --alias llama3.2", "where and as Ollama's clients look for it"},
    {VERB_SERVE, "tern serve MODEL --host 0.0.0.0 --api-key-file keys", "for other machines, with keys"},
    {VERB_LOGITS, "tern logits MODEL --ids 1,2,3 --steps 8 --out logits.bin",
     "a row for the prompt, and one for each greedy step"},
    {VERB_TOKENIZE, "tern tokenize MODEL \"some text\" --pieces", "ids, pieces and texts"},
    {VERB_DETOKENIZE, "echo '[1,2,3]' | tern detokenize MODEL", "the text of three tokens"},
    {VERB_RENDER, "tern render MODEL --json messages.json", "the prompt that the chat template makes"},
    {VERB_INSPECT, "tern inspect MODEL --ctx 8192", "what it is, and its memory with a context of 8192"},
    {VERB_LS, "tern ls", "what is here, and whether it fits"},
    {VERB_LS, "tern ls --types", "the model types that this build runs"},
    {VERB_PULL, "tern pull mlx-community/Qwen2.5-0.5B-Instruct-4bit", "a small model"},
    {VERB_PULL, "tern pull https://huggingface.co/ORG/NAME/tree/REV", "the address of its page does as well"},
    {VERB_PULL, "tern pull ORG/NAME --include '*Q4_K_M*.gguf'", "one file of a repo of GGUF files"},
    {VERB_RM, "tern rm mlx-community/Qwen2.5-0.5B-Instruct-4bit", "the model, and what was made of it"},
    {VERB_RM, "tern rm ORG/NAME@v1.0 --yes", "one revision, without a question"},
    {VERB_GC, "tern gc", "shows what no model uses, and asks"},
    {VERB_IMPORT, "tern import model.gguf my-model", "a directory that every verb takes"},
    {VERB_PREPARE, "tern prepare MODEL", "once: quicker from then on"},
    {VERB_BENCH, "tern bench MODEL -p 512,2048 -n 128", "two sizes of prompts, and decoding"},
    {VERB_PPL, "tern ppl MODEL --text book.txt", "on one text"},
    {VERB_PPL, "tern ppl MODEL --text book.txt --numerics fast --against exact", "how far fast is from exact"},
    {VERB_PARITY, "tern parity MODEL --golden DIR", "with stored goldens"},
    {VERB_DOCTOR, "tern doctor", "when something is slower than it should be"},
    {VERB_COMPLETIONS, "source <(tern completions bash)", "for this shell"},
    {VERB_HELP, "tern help run", "the flags of run"},
    {VERB_VERSION, "tern version", "for a report"},
};
const size_t examples_n = sizeof examples / sizeof *examples;

#define TAKES_THE_ONE "Without MODEL the one model that is there is taken (tern ls)."

const char *const examples_notes[] = {
    "run",
    TAKES_THE_ONE,
    "chat",
    TAKES_THE_ONE,
    "serve",
    TAKES_THE_ONE,
    "rm",
    "MODEL is the whole id that tern ls shows, never a part of one. @REV is a branch or a tag, a commit, or the first "
    "7 digits\n"
    "or more of one: without it all revisions go. With a model go its prepared weights. What goes is shown first, and "
    "asked.",
    "gc",
    "What goes: blobs that no revision uses, unfinished downloads that nobody is at, prepared weights and notes of "
    "models\n"
    "that are gone, empty folders, and what killed processes left. Models stay. What goes is shown first, and asked.",
    "pull",
    "REV is a branch, a tag or a commit; main where absent. The address of a page of the hub does as well. Files come "
    "that the\n"
    "engine reads; --include asks for others. An interrupted pull goes on from where it stopped.",
    NULL,
};
