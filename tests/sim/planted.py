#!/usr/bin/python3
"""Does the simulation see what it is there to see? Bugs are planted in copies of
the sources, one at a time, and each must be caught.

    tests/sim/planted.py [--seeds N] [--only NAME] [--jobs N]

Each bug is an edit of one file: a text that stands there exactly once, and what
is put in its place. The copy is compiled and linked in place of the original, and
the simulation runs until a seed fails. Compilers and objects come from the
environment (mk/sim.mk).
"""
import argparse
import concurrent.futures
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

# name, what kind of promise it breaks, file, text, its replacement
BUGS = [
    ("position-ahead", "event lost in a crash", "service/engine_commit.c",
     "p->partition, p->next_offset, error);", "p->partition, p->next_offset + 1, error);"),
    ("message-skipped", "event lost", "service/engine.c",
     "p->next_offset = arrival->offset + 1;",
     "p->next_offset = arrival->offset + 1 + (arrival->offset % 64 == 63);"),
    ("redelivery-taken", "event twice", "service/engine.c",
     "if (arrival->offset < p->next_offset) {", "if (arrival->offset + 1 < p->next_offset) {"),
    ("replay-skips-one", "event lost in recovery", "base/graph.c",
     "seq >= graph->pages[event->dst / NODES_A_PAGE]->current_to);",
     "seq > graph->pages[event->dst / NODES_A_PAGE]->current_to);"),
    ("output-repeated", "output repeated", "service/kafka_share.c",
     "if (entry && entry->known && offset < entry->committed)",
     "if (entry && entry->known && offset + 1 < entry->committed)"),
    ("row-dropped-at-start", "outbox row dropped in a crash", "store/config.c",
     "now->outbox_first = found ? pair[0] : now->outbox_next;",
     "now->outbox_first = found ? pair[0] + (pair[1] > pair[0]) : now->outbox_next;"),
    ("row-deleted-unsent", "output lost", "store/store.c",
     "DELETE FROM outbox WHERE seq <= ?1", "DELETE FROM outbox WHERE seq <= ?1 + 1"),
    ("numbers-used-twice", "outbox numbers used twice", "store/outbox.c",
     'if (status == DL_OK) status = store_meta_put_u64(store, "outbox_deleted_through", seq, error);',
     ""),
    ("offset-before-output", "offset committed before its output", "service/engine_commit.c",
     "if (status == DL_OK) status = dl_engine_put_records(engine, error);",
     "if (status == DL_OK) status = put_positions(engine, error);\n"
     "    if (status == DL_OK) status = dl_store_commit(engine->store, error);\n"
     "    if (status == DL_OK) status = dl_store_begin(engine->store, error);\n"
     "    if (status == DL_OK) status = dl_engine_put_records(engine, error);"),
    ("rebuilt-quiet-too-long", "output lost after a store was lost", "service/engine.c",
     "quiet = arrival->offset < p->published_below;",
     "quiet = arrival->offset <= p->published_below;"),
    ("window-by-arrival", "window out of order", "base/graph.c",
     "while (at > 0 && node->ring[slot_at(node, at - 1)].time > interaction->time) at--;", ""),
    ("ties-reversed", "window out of order among equal times", "base/graph.c",
     "node->ring[slot_at(node, at - 1)].time > interaction->time) at--;",
     "node->ring[slot_at(node, at - 1)].time >= interaction->time) at--;"),
    ("age-of-the-event", "age bound by arrival, not by time", "base/graph.c",
     "    if (node->count &&\n        is_too_old(", "    if (0 &&\n        is_too_old("),
    ("stale-checkpoint", "stale checkpoint", "store/checkpoint.c",
     "int status = round_ended(store, round->start, step, error);",
     "int status = round_ended(store, events, step, error);"),
    ("page-not-dirty", "page never checkpointed", "base/graph.c",
     "    dl_graph_mark_node(graph, id);\n}", "    (void)id;\n}"),
    ("log-cut-too-far", "log cut that recovery needs", "store/log.c",
     "if (until > now->recover_from) until = now->recover_from;", ""),
    ("not-synced", "acknowledged commit lost in a power cut", "store/store.c",
     'sync[] = {"FULL", "NORMAL", "OFF"};', 'sync[] = {"NORMAL", "NORMAL", "OFF"};'),
    ("page-clean-after-rollback", "stale page after the disk was full", "store/store.c",
     "        dl_graph_page_mark(graph, page);\n", ""),
    ("lap-resumed", "stale checkpoint after the disk was full", "store/store.c",
     "store->round = (struct store_round){.step_events = store->now.log_next};", "(void)0;"),
    ("position-clean-after-rollback", "position not stored after the disk was full",
     "service/engine_commit.c", "        if (!p->dirty) continue;\n        status =",
     "        if (!p->dirty) continue;\n        engine->positions[i].dirty = 0;\n        status ="),
    ("ids-not-stored", "repeat taken in after a crash", "service/engine_ids.c",
     'if (ids->segment.failed) return dl_error_set(error, DL_ERR_NOMEM, "out of memory for ids");',
     "return DL_OK;"),
    ("late-by-one", "late policy off by one", "service/engine.c",
     "(uint64_t)feed->last_time - (uint64_t)time > (uint64_t)engine->config->source.lateness;",
     "(uint64_t)feed->last_time - (uint64_t)time >= (uint64_t)engine->config->source.lateness;"),
    ("future-taken", "event from the future taken in", "service/engine.c",
     "if (is_future(engine, arrival, in->time, reason)) {",
     "if (is_future(engine, arrival, in->time, reason) && 0) {"),
    ("score-after-the-event", "a score that knows its own event", "service/engine.c",
     "if (scored) status = query_score(engine, item);",
     "if (scored) status = dl_graph_apply(engine->graph, event) == DL_OK ? query_score(engine, "
     "item) : DL_ERR_NOMEM;"),
    ("acknowledged-early", "ingest acknowledged before it is durable", "service/engine_ingest.c",
     "    if (any && !dl_engine_busy(engine)) dl_engine_ingest_committed(engine);",
     "    engine->batches_committed++;\n    if (any) dl_engine_ingest_committed(engine);\n"
     "    engine->batches_committed--;"),
    ("forgetting-not-replayed", "forgotten node back after a crash", "store/recover.c",
     "if (replay->forgetting) dl_store_forget_graph(replay->forgetting, replay->graph);", ""),
    ("forgetting-not-noted", "forgetting not taken up again", "service/engine_forget.c",
     "if (status == DL_OK) status = dl_store_forget_put(engine->store, record, error);\n"
     "    if (record->has_peer)", "if (record->has_peer)"),
    ("holes-before-pages", "hole in the log that recovery replays", "service/engine_forget.c",
     "    job->stage = PAGES;\n", "    job->stage = PAGES;\n    job->stage = LOG;\n"),
    ("peers-keep-it", "forgotten node stays in its peers' windows", "base/graph_forget.c",
     "n->ring[from].peer != forgotten ||", "(n->ring[from].peer != forgotten || i == 0) ||"),
    ("not-swept-before-an-event", "forgotten node takes room in a window", "base/graph.c",
     "    if (graph->forgotten_count) dl_graph_sweep_node(graph, node, id);\n", ""),
    ("full-disk-is-fatal", "a full disk ends the service", "store/store.c",
     "        return DL_ERR_FULL;\n", "        return DL_ERR_IO;\n"),
]


def words(name):
    return shlex.split(os.environ[name])


def plant(folder, bug):
    """Compiles and links the bug; returns the program."""
    name, _, file, text, instead = bug
    source = Path(file).read_text()
    if source.count(text) != 1:
        raise SystemExit(f"{name}: its text stands {source.count(text)} times in {file}: {text}")
    to = folder / name
    to.mkdir(parents=True, exist_ok=True)
    copy, object_file, program = to / Path(file).name, to / "planted.o", to / "sim"
    copy.write_text(source.replace(text, instead))
    subprocess.run([*words("SIM_CC"), "-w", "-c", "-o", object_file, copy], check=True)
    subprocess.run([*words("SIM_LINK"), "-o", program, object_file, *words("SIM_OBJECTS")],
                   check=True)
    return program


def catch(folder, bug, seeds):
    """(caught, the seed, how)."""
    program = plant(folder, bug)
    trace = program.parent / "trace"
    try:
        done = subprocess.run([program, "--filter", "simulation/*", "--timeout", "300"],
                              env={**os.environ, "SIM_SEED": "1", "SIM_SEEDS": str(seeds),
                                   "SIM_TRACE": str(trace)},
                              capture_output=True, text=True, timeout=400)
    except subprocess.TimeoutExpired:
        return True, trace.read_text().strip(), "it does not come to an end"
    said = re.search(r"seed (\d+): (.*) \(again", done.stdout + done.stderr)
    if said:
        return True, said[1], said[2]
    if done.returncode:
        return True, trace.read_text().split()[0], "it stopped with a failed check"
    return False, "", "not caught"


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=500, help="within which each must be caught")
    parser.add_argument("--only", help="one bug, by its name")
    parser.add_argument("--jobs", type=int, default=1)
    args = parser.parse_args()
    folder = Path(os.environ["SIM_FOLDER"])
    bugs = [b for b in BUGS if args.only in (None, b[0])]
    missed = 0
    with concurrent.futures.ThreadPoolExecutor(args.jobs) as pool:
        for bug, (caught, seed, how) in zip(
                bugs, pool.map(lambda b: catch(folder, b, args.seeds), bugs)):
            missed += not caught
            how = re.sub(r"/tmp/driftline-sim-\w+/", "", how)
            print(f"{bug[1]:46} {bug[0]:30} seed {seed:>4}  {how}" if caught else
                  f"{bug[1]:46} {bug[0]:30} NOT CAUGHT within {args.seeds} seeds", flush=True)
    print(f"{len(bugs) - missed} of {len(bugs)} planted bugs caught within {args.seeds} seeds")
    sys.exit(1 if missed else 0)


if __name__ == "__main__":
    main()
