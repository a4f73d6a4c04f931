"""Numbers of docs/benchmark.md, and of what sharing saves in docs/evaluation.md."""

import re
from collections.abc import Iterator
from statistics import fmean, median

from benchmarks.results import ratio
from experiments.results import Results, Row, only


def step(results: Results, lengths: str, trainer: str = "e1") -> Row:
    """The optimizer step of a trainer with rows of these lengths."""
    return only(results["bench"]["rows"], distribution=lengths, scheduler=trainer)


def benchmark(results: Results) -> Iterator[str]:
    """Quotes of docs/benchmark.md."""
    yield from schedulers(results)
    yield from steps(results)
    yield from grading(results)
    yield from programs(results)
    yield from serving(results)


def schedulers(results: Results) -> Iterator[str]:
    """Engine steps that streaming saves, and the time of a barrier."""
    for name, words in (("forced", "budget"), ("mixed", "longer"), ("natural", "unlimited"), ("nano", "at 96+64")):
        ours, barrier = (results["scheduler"]["runs"][name][kind] for kind in ("streaming", "barrier"))
        saved = 1 - fmean(run["engine_steps"] for run in ours) / fmean(run["engine_steps"] for run in barrier)
        slower = ratio([run["wall_s"] for run in barrier], [run["wall_s"] for run in ours])
        yield f"{words} | {saved:.0%} | {slower} |"
        if name == "mixed":
            yield f"mixed: {fmean(run['forced_ratio'] for run in ours):.0%} longer"


def steps(results: Results) -> Iterator[str]:
    """A step beside plain TRL's, what each layout gives of it, and what is left to save."""
    own, lognormal = (results["scoring"]["distributions"][name] for name in ("train_step_own", "train_step_lognormal"))
    for lengths, words in (
        ("train_step", "equal, 64+32 |"),
        ("train_step_own", f"the nano base's own | {own['real_positions']:.2f}"),
        ("train_step_trained", "the trained miniature's own |"),
        ("train_step_lognormal", f"256 wide | {lognormal['real_positions']:.2f}"),
    ):
        ours, theirs = step(results, lengths), step(results, lengths, "grpo")
        memory = f"{ours['peak_gb']:.1f} GB, TRL's {theirs['peak_gb']:.1f} GB"
        yield f"{words} | {ours['scoring_and_learning_ratio']} | {ours['step_ratio']} | {memory} |"
    for layout, words, digits in (
        ("from the first real token, no mask", "needs no mask", 2),
        ("and trimmed, in 4 parts", "by length", 2),
        ("and only completions through the head", "tokens here)", 2),
        ("packed, for flash attention", "on a CPU", 1),
    ):
        pairs = (zip(each["seconds"][layout], each["seconds"]["padded"], strict=True) for each in (own, lognormal))
        cells = (f"{median(ours / padded for ours, padded in pair):.{digits}f}" for pair in pairs)
        yield f"{words} | {' | '.join(cells)} |"
    plain = step(results, "train_step_own", "grpo")
    rest = 1 - (plain["scoring_s"] + plain["learning_s"]) / plain["step_s"]
    yield f"takes {rest:.0%} of the miniature's step"
    yield f"the rest can save {(1 - rest) * (1 - own['real_positions']):.0%} at most"


def grading(results: Results) -> Iterator[str]:
    """Grading beside sampling and after it, with 0.2 seconds imposed and with none."""
    runs = results["grading"]["generations"]
    beside, after = (median(run["waiting_s"] for run in runs[f"{when}, 0.2"]) for when in ("beside", "after"))
    yield f"waits {beside:.1f} s for its last grades instead of {after:.1f}"
    for imposed, words in (("0.2", " of the time ("), ("0.0", " times as long (")):
        walls = ([run["wall_s"] for run in runs[f"{when}, {imposed}"]] for when in ("beside", "after"))
        yield f"takes {ratio(*walls).replace(' (', words)}"


def programs(results: Results) -> Iterator[str]:
    """Programs a second under each isolation, of a mix, and beside those that run into their limit."""
    found, walls = results["programs"], results["programs"]["wall_s"]
    rates = [found["programs"] / wall for wall in walls["namespaces"]]
    yield f"grades {median(rates):.0f} programs a second ({min(rates):.0f} to {max(rates):.0f})"
    bare = [ratio(walls["bare"], walls[kind]) for kind in ("namespaces", "landlock")]
    yield "{:.1f} and {:.1f} times as many as bare forks".format(*(float(each.split()[0]) for each in bare))
    yield f"goes at {found['programs'] / median(walls['namespaces, mixed']):.1f} a second"
    slower = float(ratio(walls["namespaces, spinning"], walls["namespaces"]).split()[0])
    yield f"takes {slower:.0f} times as long if {found['spinning_share']:.0%} of the programs"
    cases = found["hostile_cases"]
    yield f"contains {cases - len(found['escaped'])} of {cases} runs of hostile programs"


def serving(results: Results) -> Iterator[str]:
    """The proxy beside two requests, its CPU, requests a second, and the soak."""
    serve = results["serve"]
    cpu, ours, others = serve["cpu_us"], serve["answered_per_s"]["e1 serve"], serve["answered_per_s"]["LiteLLM"]
    proxy, one = (
        [
            ratio(*([run["tokens_per_s"] for run in serve[f"clients_{count}"][arm]] for arm in (ours, "two requests")))
            for count in (32, 1)
        ]
        for ours in ("through the proxy", "one request")
    )
    yield f"the proxy's throughput is {proxy[0].replace(' to ', ' and ')} with 32 clients and {proxy[1]} with one"
    yield f"by hand, without a close, reaches {' and '.join(each.split()[0] for each in one)}"
    firsts = [[run["ttft_s"] for run in serve["clients_1"][arm]] for arm in ("through the proxy", "two requests")]
    middle, spread = ratio(*firsts).rstrip(")").split(" (")
    yield f"takes {middle} times as long ({spread}; {1000 * median(firsts[0]):.0f} ms)"
    yield f"costs the proxy {cpu['a token, 32 clients']:.0f} µs of CPU"
    yield f"and {cpu['a token, 1 clients']:.0f} µs with one"
    yield f"costs {cpu['a request, 32 clients'] / 1000:.1f} and {cpu['a request, 1 clients'] / 1000:.1f} ms"
    yield f"makes {median(ours):,.0f} requests a second ({min(ours):,.0f} to {max(ours):,.0f})"
    yield f"LiteLLM {median(others):.0f} ({min(others):.0f} to {max(others):.0f})"
    yield f"the stub alone answers {median(serve['answered_per_s']['the stub alone']):,.0f} requests a second"
    yield f"A soak of {serve['soak_requests']} requests, of which {serve['soak_failed']} failed"
    yield f"{serve['refused_while_away']} were refused while the server was away"


def sweep(results: Results) -> Iterator[str]:
    """The table of docs/evaluation.md."""
    found = results["sweep"]
    shared, separate = found["shared_tokens"], found["separate_tokens"]
    yield f"| {shared:,} | {separate:,} | {shared / separate:.2f} |"
    walls = found["shared_wall_s"], found["separate_wall_s"]
    yield f"| {median(walls[0]):.1f} | {median(walls[1]):.1f} | {ratio(*walls)}"


def gpu(results: Results) -> Iterator[str]:
    """Quotes of docs/gpu.md, whose tables have a test of their own."""
    card, run = results["card"], results["h200"]
    validated = [row["accuracy"] for row in run["miniature"]["validation"] if row["budget"] == "64+32"]
    yield f"went from {validated[0]:.1%} to {validated[-1]:.1%} on 128 problems"
    yield f"60 steps and {run['miniature']['seconds']:.0f} seconds"
    base, step = run["base"], run["base"]["history"][1]
    first, later = (run[name]["engine_seconds"] for name in ("base", "varlen"))
    (compiled,) = re.findall(r"compilation: (\d+\.\d+) s", base["facts"]["init engine"])
    starting = f"engine took {first:.0f} s to start, of which {float(compiled):.0f} to compile"
    yield f"{starting}, and {later:.0f} s the second time"
    yield f"differed by {step['sampling/sampling_logp_difference/mean']:.3f} nats a token"
    yield f"{step['weights/compared_tensors']:.0f} tensors were compared"
    asleep = base["asleep"]
    yield f"freed {asleep[0]['freed_gib']:.1f} GiB of vLLM's"
    before, after = (each["in_use_gib"] for each in (asleep[0], asleep[-1]))
    yield f"{before:.1f} GiB were in use before the first step and {after:.1f} GiB after it"
    tokens = step["thinking/mean_tokens"] + step["solution/mean_tokens"]
    yield f"256 rollouts of {tokens:,.0f} tokens were sampled in {step['seconds/sampling']:.0f} s"
    yield f"scored twice in {step['seconds/scoring']:.0f} s"
    yield f"{1000 * step['seconds/sampling'] / (step['completions/max_length'] + 1):.1f} ms for 256 sequences"
    yield f"second generation took {sum(base['seconds_a_step'][2:]):.0f} s with both"
    fp32, bf16 = (value for value in card.values() if isinstance(value, dict) and "layouts" in value)
    packed = [to_trimmed(kind, "packed, PyTorch's flash kernel") for kind in (fp32, bf16)]
    spreads = [f"{median(ratios):.2f} {{}} ({min(ratios):.2f} to {max(ratios):.2f})" for ratios in packed]
    first, later = spreads[0].format("of the time of trimmed ones with fp32 weights"), spreads[1].format("with bf16")
    yield f"Packed rows take {first}, {later}"
    two = [median(to_trimmed(kind, "trimmed, two passes")) for kind in (fp32, bf16)]
    yield f"With fp32 weights they take {two[0] - 1:.0%} longer, with bf16 {1 - two[1]:.0%} less"
    four = [median(to_trimmed(kind, "trimmed, four passes")) for kind in (fp32, bf16)]
    yield f"take {min(four):.2f} to {max(four):.1f} times as long"
    more = [more_gb(kind, "trimmed, all logits at once") for kind in (fp32, bf16)]
    whole = [1 - median(to_trimmed(kind, "trimmed, all logits at once")) for kind in (fp32, bf16)]
    least, most = min(min(each) for each in more), max(max(each) for each in more)
    yield f"saves {least:.0f} to {most:.0f} GB, for {100 * min(whole):.0f} to {max(whole):.0%} of the time"
    saved = [-gb for kind in (fp32, bf16) for gb in more_gb(kind, "trimmed, two passes")]
    yield f"Two passes for each micro-batch save {min(saved):.1f} to {max(saved):.1f} GB"
    rows = [row for kind in (fp32, bf16) for row in kind["longest"]]
    one_pass = [row for row in rows if row["layout"].startswith(("trimmed, one", "packed"))]
    allocated, reserved = ([row[name] / row["planned_gb"] for row in one_pass] for name in ("allocated", "reserved"))
    yield f"takes {100 - 100 * max(allocated):.0f} to {1 - min(allocated):.0%} less for activations"
    yield f"reserves up to {max(reserved) - 1:.0%} more than is planned"


def to_trimmed(kind: Row, layout: str) -> list[float]:
    """Ratios of a layout's seconds to those of trimmed rows in one pass, round by round."""
    seconds = {each["layout"]: each["seconds"] for each in kind["layouts"]}
    return [one / other for one, other in zip(seconds[layout], seconds["trimmed, one pass"], strict=True)]


def more_gb(kind: Row, layout: str) -> list[float]:
    """GB that a layout takes beyond trimmed rows in one pass, of drawn lengths and of the longest."""
    names = (("layouts", "peak_gb"), ("longest", "allocated"))
    found = ([only(kind[rows], layout=each)[name] for each in (layout, "trimmed, one pass")] for rows, name in names)
    return [one - other for one, other in found]
