"""What one-vs-all takes on a cluster, worked out by a formula and by a simulation of its failures.

    python -m experiments.cluster_scaling [--small|--full] [--out results]

Measures on this machine what a label of such data takes (xmcjax.lanes.forecast_of_shape), what a task of Dask
costs beside its work, and how long a worker that was killed is missing. With these numbers, and those of the
options that no single machine shows, it works out bytes, seconds and money of a run, and simulates it:
machines of other speeds, machines that fail and come again, tasks that are lost with them. Writes
cluster_scaling.json and .md.
"""

from __future__ import annotations

import dataclasses
import heapq
import os
import signal
import time

import numpy as np

from experiments import _report

NAME = "cluster_scaling"
# For each run the shape (rows, features, entries of features, entries of labels, labels) and the numbers of
# machines. Amazon-3M has the statistics of the extreme classification repository; the other one is made up.
RUNS = {
    "Amazon-3M": ((1_717_899, 337_067, 85_000_000, 62_100_000, 2_812_281), (1, 10, 100)),
    "100 million labels": ((30_000_000, 1_000_000, 1_500_000_000, 300_000_000, 100_000_000), (1000,)),
}


@dataclasses.dataclass(frozen=True)
class Options(_report.Sized):
    """A run on a cluster.

    Attributes:
        threads: of a machine.
        memory: GB of a machine.
        bandwidth: GB a second from the store of the data to all machines together.
        link: GB a second into one machine.
        price: of a machine-hour, in any currency.
        failures: days from one failure of a machine to the next, on average.
        spread: of the logarithm of the machines' speeds.
        shard_size: labels of a task.
        repeats: of the simulation, with other seeds.
        small: a made-up set of 2,000 labels on 4 machines.
        full: twenty repetitions.
    """

    threads: int = 64
    memory: float = 256.0
    bandwidth: float = 10.0
    link: float = 1.0
    price: float = 2.0
    failures: float = 30.0
    spread: float = 0.1
    shard_size: int = 1000
    repeats: int = 5

    def chosen(self) -> Options:
        """With the sizes that --small or --full stand for."""
        return dataclasses.replace(self, repeats=20 if self.full else 2 if self.small else self.repeats)


@dataclasses.dataclass(frozen=True)
class Costs:
    """The measured costs.

    Attributes:
        task: seconds that the scheduler takes per task; it handles tasks one after the other.
        restart: seconds that a killed worker is missing.
    """

    task: float
    restart: float


def measured() -> Costs:
    """Measures the costs of Dask on this machine with many empty tasks and with a worker that is killed."""
    from xmcjax.cluster import local_cluster

    with local_cluster(workers=2) as client:
        client.gather(client.map(abs, range(50), pure=False))
        begin, count = time.perf_counter(), 1000
        client.gather(client.map(abs, range(count), pure=False))
        task = (time.perf_counter() - begin) / count
        pids: dict = client.run(os.getpid)  # type: ignore[assignment]
        first, begin = next(iter(pids.values())), time.perf_counter()
        os.kill(first, signal.SIGKILL)
        restart = _missing(client, first, begin)
    return Costs(task, restart)


def _missing(client, killed: int, begin: float) -> float:
    """Seconds until two workers are there, neither of them the killed one."""
    while time.perf_counter() - begin < 60:
        try:
            now = client.run(os.getpid)
        except OSError:  # the connection to the killed worker
            continue
        if len(now) == 2 and killed not in now.values():
            return time.perf_counter() - begin
        time.sleep(0.05)
    raise RuntimeError("no worker came in place of one that was killed")


def formula(shape: tuple[int, ...], machines: int, forecast, options: Options, costs: Costs) -> dict:
    """Bytes, seconds and money if nothing fails and all machines are alike.

    Args:
        shape: of RUNS.
        machines: M.
        forecast: of one thread, for all labels.
        options: T threads, bandwidths, price.
        costs: the measured costs.
    """
    from xmcjax.lanes import ON_A_CPU, Shape, model_bytes, training_bytes

    sizes = Shape(shape[0], shape[1], shape[2], shape[3], shape[4])
    data = 8 * (sizes.entries + sizes.positives) + 8 * 2 * sizes.rows
    model = model_bytes(forecast.weights, 4)
    tasks = -(-sizes.labels // options.shard_size)

    def held(threads: int, lanes: int) -> int:
        more = dict(itemsize=4, weights=forecast.weights, shard_size=options.shard_size)
        return training_bytes(sizes, threads=threads, lanes=lanes, **more)

    # as many threads of a machine as fit into its memory, at least one
    fitting = (t for t in range(options.threads, 0, -1) if held(t, ON_A_CPU) <= options.memory * 1e9)
    threads = next(fitting, 1)
    # every machine reads all data from the shared store: max(D / link, M D / bandwidth)
    reading = max(data / options.link, machines * data / options.bandwidth) / 1e9
    working = forecast.seconds / (machines * threads)
    # a thread has at least one task; on average the threads end half a task apart
    one_task = forecast.seconds / tasks
    tail = one_task / 2 if tasks > machines * threads else max(0.0, one_task - working)
    scheduling = tasks * costs.task
    seconds = reading + max(working + tail, scheduling)

    return {
        "data_bytes": data,
        "sent_bytes": data * machines,
        "model_bytes": model,
        "tasks": tasks,
        "reading_s": reading,
        "working_s": working,
        "scheduling_s": scheduling,
        "one_task_s": one_task,
        "seconds": seconds,
        "money": seconds / 3600 * machines * options.price,
        "held_bytes": held(options.threads, ON_A_CPU),
        "threads": threads,
        "failures": machines * seconds / (options.failures * 86400),
    }


def simulated(found: dict, machines: int, options: Options, costs: Costs, seed: int) -> dict:
    """The same run with machines of different speeds that fail; tasks lost with them are done again.

    Events come in the order of time. A machine has as many tasks as threads of it fit into memory. A machine
    that fails loses its tasks, is missing while it restarts and reads the data, and goes on. Tasks are alike.
    """
    rng = np.random.default_rng(seed)
    speed = np.exp(options.spread * rng.standard_normal(machines))
    threads, tasks = found["threads"], found["tasks"]
    away = costs.restart + found["data_bytes"] / (options.link * 1e9)
    mean = options.failures * 86400
    # (time, machine, life): when a task of a machine ends; a failure begins the machine's next life
    life = np.zeros(machines, int)
    running = np.zeros(machines, int)
    fails = found["reading_s"] + rng.exponential(mean, machines)
    events: list[tuple[float, int, int]] = []
    left, done, lost, failures, last, issued = tasks, 0, 0, 0, found["reading_s"], found["reading_s"]

    def take(machine: int, now: float) -> bool:
        nonlocal left, issued
        if left == 0:
            return False
        left -= 1
        running[machine] += 1
        issued = max(issued, now) + costs.task  # the scheduler issues one task after the other
        heapq.heappush(events, (issued + found["one_task_s"] / speed[machine], machine, int(life[machine])))
        return True

    for _ in range(threads):
        for machine in range(machines):
            take(machine, found["reading_s"])
    waiting: list[tuple[float, int]] = []  # machines that restart
    while done < tasks:
        machine = int(np.argmin(fails))
        failing, next_end = fails[machine], events[0][0] if events else np.inf
        back = waiting[0][0] if waiting else np.inf
        now = min(failing, next_end, back)
        if now == failing:
            failures, lost = failures + 1, lost + int(running[machine])
            left, running[machine] = left + int(running[machine]), 0
            life[machine] += 1
            heapq.heappush(waiting, (now + away, machine))
            fails[machine] = now + away + rng.exponential(mean)
        elif now == back:
            _, machine = heapq.heappop(waiting)
            for _ in range(threads):
                take(machine, now)
        else:
            _, machine, of = heapq.heappop(events)
            if of == life[machine]:
                done, last = done + 1, now
                running[machine] -= 1
                take(machine, now)
    return {"seconds": last, "failures": failures, "lost_tasks": lost}


def run(options: Options) -> dict:
    """Measures, works out and simulates."""
    from xmcjax.lanes import OneVsAll, Shape, forecast_of_shape

    costs, rows = measured(), []
    runs = {"made": ((2000, 500, 40_000, 6000, 2000), (4,))} if options.small else RUNS
    options = dataclasses.replace(options, shard_size=50) if options.small else options
    for name, (shape, counts) in runs.items():
        sizes = Shape(shape[0], shape[1], shape[2], shape[3], shape[4])
        _, forecast = forecast_of_shape(sizes, OneVsAll(n_jobs=1), "float32")
        for machines in counts:
            found = formula(shape, machines, forecast, options, costs)
            made = [simulated(found, machines, options, costs, seed) for seed in range(options.repeats)]
            median = {key: float(np.median([one[key] for one in made])) for key in made[0]}
            rows.append({"run": name, "machines": machines, "formula": found, "simulated": median})
            rows[-1]["label_seconds"] = forecast.seconds / sizes.labels
    return {
        "options": dataclasses.asdict(options) | {"out": None},
        "costs": dataclasses.asdict(costs),
        "rows": rows,
    }


def markdown(result: dict) -> str:
    """The table."""
    header = [
        *("run", "machines", "s per label", "sent GB", "model GB", "tasks", "held GB", "threads that fit"),
        *("hours", "simulated", "failures", "tasks lost", "money"),
    ]
    table = []
    for row in result["rows"]:
        found, made = row["formula"], row["simulated"]
        table.append(
            [
                row["run"],
                row["machines"],
                f"{row['label_seconds']:.3g}",
                f"{found['sent_bytes'] / 1e9:,.0f}",
                f"{found['model_bytes'] / 1e9:,.0f}",
                f"{found['tasks']:,}",
                f"{found['held_bytes'] / 1e9:,.0f}",
                found["threads"],
                f"{found['seconds'] / 3600:,.1f}",
                f"{made['seconds'] / 3600:,.1f}",
                f"{made['failures']:.0f}",
                f"{made['lost_tasks']:.0f}",
                f"{found['money']:,.0f}",
            ]
        )
    costs, options = result["costs"], result["options"]
    text = (
        f"{options['threads']} threads a machine; a task costs {1e3 * costs['task']:.1f} ms beside its "
        f"work, a killed worker is missing for {costs['restart']:.1f} s"
    )
    return f"{text}\n\n{_report.markdown_table(header, table)}\n"


if __name__ == "__main__":
    _report.main(NAME, Options, __doc__, run, markdown)
