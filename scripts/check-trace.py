#!/usr/bin/env python3
"""Reads traces as Perfetto does, by its own definitions, and tells what each track was busy with.

    pip install perfetto
    rustorch-cli -p Hello --trace run.pftrace
    scripts/check-trace.py run.pftrace                # by perfetto_trace_pb2
    scripts/check-trace.py run.pftrace --processor    # also by TraceProcessor, whose program it fetches
"""

import argparse
import collections
import sys

from perfetto.protos.perfetto.trace import perfetto_trace_pb2 as pb

EVENT = pb.TrackEvent


def read(path):
    """The slices of each track, as (begin, end, name, notes) in nanoseconds; instants; numbers."""
    trace = pb.Trace()
    with open(path, "rb") as file:
        trace.ParseFromString(file.read())
    tracks, clocks, defaults, names = {}, {}, {}, collections.defaultdict(dict)
    slices, instants, numbers, opened = (collections.defaultdict(list) for _ in range(4))
    for packet in trace.packet:
        sequence = packet.trusted_packet_sequence_id
        if packet.HasField("track_descriptor"):
            track = packet.track_descriptor
            tracks[track.uuid] = track.name or track.thread.thread_name or track.process.process_name
        if packet.HasField("trace_packet_defaults"):
            defaults[sequence] = packet.trace_packet_defaults
        for clock in packet.clock_snapshot.clocks:
            if clock.is_incremental:
                clocks[sequence] = clock.timestamp
        for kind in ("event_names", "debug_annotation_names"):
            for entry in getattr(packet.interned_data, kind):
                names[sequence][kind, entry.iid] = entry.name
        for entry in packet.interned_data.debug_annotation_string_values:
            names[sequence]["text", entry.iid] = entry.str.decode()
        if not packet.HasField("track_event"):
            continue
        event = packet.track_event
        assert defaults[sequence].timestamp_clock_id >= 64, "a clock of the sequence's own"
        clocks[sequence] += packet.timestamp
        at = clocks[sequence]
        track = tracks[event.track_uuid or defaults[sequence].track_event_defaults.track_uuid]
        name = names[sequence].get(("event_names", event.name_iid))
        notes = {
            names[sequence]["debug_annotation_names", note.name_iid]: names[sequence]["text", note.string_value_iid]
            if note.string_value_iid
            else note.uint_value
            for note in event.debug_annotations
        }
        if event.type == EVENT.TYPE_SLICE_BEGIN:
            opened[track].append((at, name, notes))
        elif event.type == EVENT.TYPE_SLICE_END:
            begin, name, notes = opened[track].pop()
            slices[track].append((begin, at, name, notes))
        elif event.type == EVENT.TYPE_INSTANT:
            instants[track].append((at, name, notes))
        elif event.type == EVENT.TYPE_COUNTER:
            numbers[track].append((at, event.double_counter_value or event.counter_value))
    assert not any(opened.values()), "slices without an end"
    return slices, instants, numbers


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("trace")
    parser.add_argument("--processor", action="store_true")
    options = parser.parse_args()
    slices, instants, numbers = read(options.trace)
    for track, its in slices.items():
        busy = sum(end - begin for begin, end, *_ in its) / 1e6
        span = (max(end for _, end, *_ in its) - min(begin for begin, *_ in its)) / 1e6
        print(f"{track}: {len(its)} slices, together {busy:.3f} ms in {span:.3f} ms")
        by_name = collections.Counter()
        for begin, end, name, _ in its:
            by_name[name] += end - begin
        for name, time in by_name.most_common(5):
            print(f"    {time / 1e6:10.3f} ms  {name}")
    for track, its in instants.items():
        for at, name, notes in its:
            print(f"{track}: {at / 1e6:.3f} ms: {name} {notes}")
    for track, its in numbers.items():
        print(f"{track}: {len(its)} numbers, at most {max(value for _, value in its):g}")
    if options.processor:
        from perfetto.trace_processor import TraceProcessor

        processor = TraceProcessor(trace=options.trace)
        query = """select t.name, count(*) n, sum(s.dur) / 1e6 ms from slice s
            join track t on s.track_id = t.id group by t.name"""
        for row in processor.query(query):
            print(f"TraceProcessor: {row.name}: {row.n} slices, {row.ms:.3f} ms")
        errors = "select name, value from stats where severity = 'error' and value > 0"
        found = [f"{row.name} {row.value}" for row in processor.query(errors)]
        processor.close()
        if found:
            sys.exit(f"TraceProcessor: {', '.join(found)}")


main()
