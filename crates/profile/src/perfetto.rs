//! Perfetto's own format: a `Trace` of its `TrackEvent`s, as `protos/perfetto/trace` of its sources
//! defines them. Field numbers are those of these definitions.
//!
//! It is kept small: each track is a sequence of packets of its own, whose defaults name the track
//! and a clock that counts from packet to packet, and names are written once in each.

use std::collections::HashMap;
use std::time::{SystemTime, UNIX_EPOCH};

use prost::Message;

use crate::timeline::{Label, Note, Sink, Track, TrackId, TrackKind, Unit};

/// Clocks: of the trace, of the calendar, and the one that counts from packet to packet.
const BOOTTIME: u32 = 6;
const REALTIME: u32 = 1;
const STEPS: u32 = 64;

const SLICE_BEGIN: i32 = 1;
const SLICE_END: i32 = 2;
const INSTANT: i32 = 3;
const COUNTER: i32 = 4;

/// What is interned may be forgotten: here a sequence begins.
const STATE_CLEARED: u32 = 1;

#[derive(Clone, PartialEq, Message)]
pub(crate) struct Trace {
    #[prost(message, repeated, tag = "1")]
    pub(crate) packet: Vec<Packet>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct Packet {
    #[prost(message, optional, tag = "6")]
    pub(crate) clock_snapshot: Option<ClockSnapshot>,
    #[prost(uint64, optional, tag = "8")]
    pub(crate) timestamp: Option<u64>,
    #[prost(uint32, optional, tag = "10")]
    pub(crate) trusted_packet_sequence_id: Option<u32>,
    #[prost(message, optional, tag = "11")]
    pub(crate) track_event: Option<TrackEvent>,
    #[prost(message, optional, tag = "12")]
    pub(crate) interned_data: Option<InternedData>,
    #[prost(uint32, optional, tag = "13")]
    pub(crate) sequence_flags: Option<u32>,
    #[prost(uint32, optional, tag = "58")]
    pub(crate) timestamp_clock_id: Option<u32>,
    #[prost(message, optional, tag = "59")]
    pub(crate) trace_packet_defaults: Option<PacketDefaults>,
    #[prost(message, optional, tag = "60")]
    pub(crate) track_descriptor: Option<TrackDescriptor>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct ClockSnapshot {
    #[prost(message, repeated, tag = "1")]
    pub(crate) clocks: Vec<Clock>,
    #[prost(uint32, optional, tag = "2")]
    pub(crate) primary_trace_clock: Option<u32>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct Clock {
    #[prost(uint32, optional, tag = "1")]
    pub(crate) clock_id: Option<u32>,
    #[prost(uint64, optional, tag = "2")]
    pub(crate) timestamp: Option<u64>,
    #[prost(bool, optional, tag = "3")]
    pub(crate) is_incremental: Option<bool>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct PacketDefaults {
    #[prost(message, optional, tag = "11")]
    pub(crate) track_event_defaults: Option<EventDefaults>,
    #[prost(uint32, optional, tag = "58")]
    pub(crate) timestamp_clock_id: Option<u32>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct EventDefaults {
    #[prost(uint64, optional, tag = "11")]
    pub(crate) track_uuid: Option<u64>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct TrackDescriptor {
    #[prost(uint64, optional, tag = "1")]
    pub(crate) uuid: Option<u64>,
    #[prost(string, optional, tag = "2")]
    pub(crate) name: Option<String>,
    #[prost(message, optional, tag = "3")]
    pub(crate) process: Option<Process>,
    #[prost(message, optional, tag = "4")]
    pub(crate) thread: Option<Thread>,
    #[prost(uint64, optional, tag = "5")]
    pub(crate) parent_uuid: Option<u64>,
    #[prost(message, optional, tag = "8")]
    pub(crate) counter: Option<Counter>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct Process {
    #[prost(int32, optional, tag = "1")]
    pub(crate) pid: Option<i32>,
    #[prost(string, optional, tag = "6")]
    pub(crate) process_name: Option<String>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct Thread {
    #[prost(int32, optional, tag = "1")]
    pub(crate) pid: Option<i32>,
    #[prost(int32, optional, tag = "2")]
    pub(crate) tid: Option<i32>,
    #[prost(string, optional, tag = "5")]
    pub(crate) thread_name: Option<String>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct Counter {
    /// 3 for bytes.
    #[prost(int32, optional, tag = "3")]
    pub(crate) unit: Option<i32>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct TrackEvent {
    #[prost(uint64, repeated, packed = "false", tag = "3")]
    pub(crate) category_iids: Vec<u64>,
    #[prost(message, repeated, tag = "4")]
    pub(crate) debug_annotations: Vec<Annotation>,
    #[prost(int32, optional, tag = "9")]
    pub(crate) r#type: Option<i32>,
    #[prost(uint64, optional, tag = "10")]
    pub(crate) name_iid: Option<u64>,
    #[prost(int64, optional, tag = "30")]
    pub(crate) counter_value: Option<i64>,
    #[prost(double, optional, tag = "44")]
    pub(crate) double_counter_value: Option<f64>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct Annotation {
    #[prost(uint64, optional, tag = "1")]
    pub(crate) name_iid: Option<u64>,
    #[prost(uint64, optional, tag = "3")]
    pub(crate) uint_value: Option<u64>,
    #[prost(string, optional, tag = "6")]
    pub(crate) string_value: Option<String>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct InternedData {
    #[prost(message, repeated, tag = "1")]
    pub(crate) event_categories: Vec<Interned>,
    #[prost(message, repeated, tag = "2")]
    pub(crate) event_names: Vec<Interned>,
    #[prost(message, repeated, tag = "3")]
    pub(crate) debug_annotation_names: Vec<Interned>,
}

/// A name that later packets of a sequence call by a number.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct Interned {
    #[prost(uint64, optional, tag = "1")]
    pub(crate) iid: Option<u64>,
    #[prost(string, optional, tag = "2")]
    pub(crate) name: Option<String>,
}

/// Writes packets.
pub(crate) struct Perfetto {
    out: Vec<u8>,
    sequences: Vec<Sequence>,
}

/// The packets of a track.
struct Sequence {
    /// Of the last packet.
    at: u64,
    names: Names,
    categories: Names,
    notes: Names,
}

/// Names with their numbers.
#[derive(Default)]
struct Names(HashMap<String, u64>);

impl Names {
    /// The number of a name, which `new` is told if it was not known.
    fn number(&mut self, name: &str, new: &mut Vec<Interned>) -> u64 {
        if let Some(&number) = self.0.get(name) {
            return number;
        }
        let number = self.0.len() as u64 + 1;
        self.0.insert(name.to_owned(), number);
        new.push(Interned {
            iid: Some(number),
            name: Some(name.to_owned()),
        });
        number
    }
}

/// The track of this process, which threads are of.
const PROCESS: u64 = 1;

/// What tells a track from those of other traces that are looked at together.
fn uuid(track: TrackId) -> u64 {
    u64::from(track) + 2
}

impl Perfetto {
    pub(crate) fn new(process: &str) -> Self {
        let mut perfetto = Self {
            out: Vec::new(),
            sequences: Vec::new(),
        };
        let date = SystemTime::now().duration_since(UNIX_EPOCH);
        let date = date.map_or(0, |date| date.as_nanos() as u64);
        perfetto.write(Packet {
            clock_snapshot: Some(ClockSnapshot {
                clocks: vec![clock(BOOTTIME, 0), clock(REALTIME, date)],
                primary_trace_clock: Some(BOOTTIME),
            }),
            trusted_packet_sequence_id: Some(1),
            ..Packet::default()
        });
        perfetto.write(Packet {
            track_descriptor: Some(TrackDescriptor {
                uuid: Some(PROCESS),
                process: Some(Process {
                    pid: Some(pid()),
                    process_name: Some(process.to_owned()),
                }),
                ..TrackDescriptor::default()
            }),
            trusted_packet_sequence_id: Some(1),
            ..Packet::default()
        });
        perfetto
    }

    fn write(&mut self, packet: Packet) {
        let packet = vec![packet];
        // A vector takes whatever is written to it.
        let _ = Trace { packet }.encode(&mut self.out);
    }

    /// Writes an event on a track.
    fn event(&mut self, track: TrackId, at: u64, event: TrackEvent, new: InternedData) {
        let sequence = &mut self.sequences[track as usize];
        let step = at.saturating_sub(sequence.at);
        sequence.at = at;
        let is_any = new != InternedData::default();
        self.write(Packet {
            timestamp: Some(step),
            trusted_packet_sequence_id: Some(track + 2),
            track_event: Some(event),
            interned_data: is_any.then_some(new),
            ..Packet::default()
        });
    }

    fn labelled(&mut self, track: TrackId, at: u64, r#type: i32, label: &Label<'_>) {
        let sequence = &mut self.sequences[track as usize];
        let mut new = InternedData::default();
        let notes = label.notes.iter().map(|(name, note)| {
            let number = (sequence.notes).number(name, &mut new.debug_annotation_names);
            let name_iid = Some(number);
            match note {
                Note::Count(count) => Annotation {
                    name_iid,
                    uint_value: Some(*count),
                    string_value: None,
                },
                Note::Text(text) => Annotation {
                    name_iid,
                    uint_value: None,
                    string_value: Some((*text).to_owned()),
                },
            }
        });
        let debug_annotations = notes.collect();
        let event = TrackEvent {
            // All launches of a device's track are of one.
            category_iids: match label.category {
                "launch" => Vec::new(),
                name => vec![(sequence.categories).number(name, &mut new.event_categories)],
            },
            debug_annotations,
            r#type: Some(r#type),
            name_iid: Some((sequence.names).number(label.name, &mut new.event_names)),
            ..TrackEvent::default()
        };
        self.event(track, at, event, new);
    }
}

fn pid() -> i32 {
    std::process::id().cast_signed()
}

fn clock(id: u32, timestamp: u64) -> Clock {
    Clock {
        clock_id: Some(id),
        timestamp: Some(timestamp),
        is_incremental: None,
    }
}

impl Sink for Perfetto {
    fn track(&mut self, track: &Track) {
        let id = self.sequences.len() as TrackId;
        let sequence = Some(id + 2);
        let mut descriptor = TrackDescriptor {
            uuid: Some(uuid(id)),
            ..TrackDescriptor::default()
        };
        let name = Some(track.name.clone());
        match track.kind {
            TrackKind::Device => descriptor.name = name,
            TrackKind::Part(of) => {
                descriptor.name = name;
                descriptor.parent_uuid = Some(uuid(of));
            }
            TrackKind::Counter(of, unit) => {
                descriptor.name = name;
                descriptor.parent_uuid = Some(uuid(of));
                descriptor.counter = Some(Counter {
                    unit: (unit == Unit::Bytes).then_some(3),
                });
            }
            TrackKind::Thread(number) => {
                descriptor.parent_uuid = Some(PROCESS);
                descriptor.thread = Some(Thread {
                    pid: Some(pid()),
                    tid: Some(number.cast_signed()),
                    thread_name: name,
                });
            }
        }
        self.write(Packet {
            track_descriptor: Some(descriptor),
            trusted_packet_sequence_id: sequence,
            ..Packet::default()
        });
        let steps = Clock {
            is_incremental: Some(true),
            ..clock(STEPS, 0)
        };
        self.write(Packet {
            clock_snapshot: Some(ClockSnapshot {
                clocks: vec![clock(BOOTTIME, 0), steps],
                primary_trace_clock: None,
            }),
            trusted_packet_sequence_id: sequence,
            sequence_flags: Some(STATE_CLEARED),
            trace_packet_defaults: Some(PacketDefaults {
                track_event_defaults: Some(EventDefaults {
                    track_uuid: Some(uuid(id)),
                }),
                timestamp_clock_id: Some(STEPS),
            }),
            ..Packet::default()
        });
        self.sequences.push(Sequence {
            at: 0,
            names: Names::default(),
            categories: Names::default(),
            notes: Names::default(),
        });
    }

    fn begin(&mut self, track: TrackId, at: u64, label: &Label<'_>) {
        self.labelled(track, at, SLICE_BEGIN, label);
    }

    fn end(&mut self, track: TrackId, at: u64) {
        let event = TrackEvent {
            r#type: Some(SLICE_END),
            ..TrackEvent::default()
        };
        self.event(track, at, event, InternedData::default());
    }

    fn instant(&mut self, track: TrackId, at: u64, label: &Label<'_>) {
        self.labelled(track, at, INSTANT, label);
    }

    fn counter(&mut self, track: TrackId, at: u64, value: f64) {
        let is_whole = value.fract() == 0.0 && value.abs() < 2f64.powi(53);
        let event = TrackEvent {
            r#type: Some(COUNTER),
            counter_value: is_whole.then_some(value as i64),
            double_counter_value: (!is_whole).then_some(value),
            ..TrackEvent::default()
        };
        self.event(track, at, event, InternedData::default());
    }

    /// A trace may end anywhere between packets.
    fn finish(&mut self) {}

    fn take(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.out)
    }
}
