//! Perfetto's own format: a `Trace` of its `TrackEvent`s, as `protos/perfetto/trace` of its sources
//! defines them. Field numbers are those of these definitions.
//!
//! It is kept small: each track is a sequence of packets of its own, whose defaults name the track
//! and a clock that counts from packet to packet, and names are written once in each.
//!
//! Events are nearly all of a trace. They are written [field by field](Wire), where everything else is a message that
//! `prost` encodes: building one for each costs many times what it takes to write it.

use std::mem;
use std::ptr;
use std::time::{SystemTime, UNIX_EPOCH};

use prost::Message;

use crate::Map;
use crate::timeline::{Label, Note, Sink, Track, TrackId, TrackKind, Unit};

/// Clocks: of the trace, of the calendar, and the one that counts from packet to packet.
const BOOTTIME: u32 = 6;
const REALTIME: u32 = 1;
const STEPS: u32 = 64;

/// Types of events.
const SLICE_BEGIN: u64 = 1;
const SLICE_END: u64 = 2;
const INSTANT: u64 = 3;
const COUNTER: u64 = 4;

/// Fields of a trace, of its packets, and of their events.
const PACKET: u32 = 1;
const TIMESTAMP: u32 = 8;
const SEQUENCE: u32 = 10;
const TRACK_EVENT: u32 = 11;
const INTERNED_DATA: u32 = 12;
const CATEGORY: u32 = 3;
const ANNOTATION: u32 = 4;
const TYPE: u32 = 9;
const NAME: u32 = 10;
const COUNTER_VALUE: u32 = 30;
const DOUBLE_COUNTER_VALUE: u32 = 44;

/// What is interned may be forgotten: here a sequence begins.
const STATE_CLEARED: u32 = 1;

#[derive(Clone, PartialEq, Message)]
pub(crate) struct Packet {
    #[prost(message, optional, tag = "6")]
    pub(crate) clock_snapshot: Option<ClockSnapshot>,
    #[prost(uint64, optional, tag = "8")]
    pub(crate) timestamp: Option<u64>,
    #[prost(uint32, optional, tag = "10")]
    pub(crate) trusted_packet_sequence_id: Option<u32>,
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
#[derive(Default)]
struct Sequence {
    /// Of the last packet.
    at: u64,
    names: Map<String, u64>,
    categories: Few,
    notes: Few,
    /// What is the same in all packets that end a slice.
    end: Vec<u8>,
}

/// A few names, in the order of their numbers.
#[derive(Default)]
struct Few(Vec<&'static str>);

impl Few {
    /// The number of a name; if it was not known, `new` is told.
    fn number(&mut self, name: &'static str, new: impl FnOnce(Interned)) -> u64 {
        // Mostly it is the same text, which need not be read.
        let same = self.0.iter().position(|known| ptr::eq(*known, name));
        let known = same.or_else(|| self.0.iter().position(|known| *known == name));
        let index = known.unwrap_or_else(|| {
            self.0.push(name);
            new(Interned::new(self.0.len() as u64, name));
            self.0.len() - 1
        });
        index as u64 + 1
    }
}

impl Interned {
    fn new(number: u64, name: &str) -> Self {
        Self {
            iid: Some(number),
            name: Some(name.to_owned()),
        }
    }
}

impl Sequence {
    /// From the last packet until `at`, which is the last one now.
    fn step(&mut self, at: u64) -> u64 {
        let step = at.saturating_sub(self.at);
        self.at = at;
        step
    }

    /// The number of a name; if it was not known, `new` is told.
    fn name(&mut self, name: &str, new: impl FnOnce(Interned)) -> u64 {
        if let Some(&number) = self.names.get(name) {
            return number;
        }
        let number = self.names.len() as u64 + 1;
        self.names.insert(name.to_owned(), number);
        new(Interned::new(number, name));
        number
    }
}

/// A message, as protocol buffers have it.
struct Wire<'a>(&'a mut Vec<u8>);

impl Wire<'_> {
    fn varint(&mut self, mut value: u64) {
        while value >= 0x80 {
            self.0.push(value as u8 | 0x80);
            value >>= 7;
        }
        self.0.push(value as u8);
    }

    /// A field with a whole number.
    fn number(&mut self, field: u32, value: u64) {
        self.varint(u64::from(field) << 3);
        self.varint(value);
    }

    fn double(&mut self, field: u32, value: f64) {
        self.varint(u64::from(field) << 3 | 1);
        self.0.extend_from_slice(&value.to_le_bytes());
    }

    fn text(&mut self, field: u32, text: &str) {
        self.message(field, |message| {
            message.0.extend_from_slice(text.as_bytes())
        });
    }

    /// The fields of a message.
    fn encode(&mut self, message: &impl Message) {
        // A vector takes whatever is written to it.
        let _ = message.encode(self.0);
    }

    /// A field with what `fill` writes, which has its length in front.
    fn message(&mut self, field: u32, fill: impl FnOnce(&mut Wire<'_>)) {
        self.varint(u64::from(field) << 3 | 2);
        let length = self.0.len();
        // Nearly all are so short that a byte is enough.
        self.0.push(0);
        fill(self);
        let filled = (self.0.len() - length - 1) as u64;
        if filled < 0x80 {
            self.0[length] = filled as u8;
            return;
        }
        let mut longer = Vec::new();
        Wire(&mut longer).varint(filled);
        self.0.splice(length..=length, longer);
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
        Wire(&mut self.out).message(PACKET, |out| out.encode(&packet));
    }

    /// Writes an event on a track, whose fields `fill` writes.
    fn event(&mut self, track: TrackId, at: u64, fill: impl FnOnce(&mut Wire<'_>)) {
        let step = self.sequences[track as usize].step(at);
        Wire(&mut self.out).message(PACKET, |packet| {
            packet.number(TIMESTAMP, step);
            packet.number(SEQUENCE, u64::from(track) + 2);
            packet.message(TRACK_EVENT, fill);
        });
    }

    fn labelled(&mut self, track: TrackId, at: u64, r#type: u64, label: &Label<'_>) {
        let sequence = &mut self.sequences[track as usize];
        let step = sequence.step(at);
        // Mostly nothing.
        let mut new = None::<InternedData>;
        Wire(&mut self.out).message(PACKET, |packet| {
            packet.number(TIMESTAMP, step);
            packet.number(SEQUENCE, u64::from(track) + 2);
            packet.message(TRACK_EVENT, |event| {
                // All launches of a device's track are of one.
                if label.category != "launch" {
                    let number = sequence.categories.number(label.category, |its| {
                        new.get_or_insert_default().event_categories.push(its);
                    });
                    event.number(CATEGORY, number);
                }
                for (name, note) in label.notes {
                    let number = sequence.notes.number(name, |its| {
                        let new = new.get_or_insert_default();
                        new.debug_annotation_names.push(its);
                    });
                    event.message(ANNOTATION, |annotation| {
                        annotation.number(1, number);
                        match note {
                            Note::Count(count) => annotation.number(3, *count),
                            Note::Text(text) => annotation.text(6, text),
                        }
                    });
                }
                event.number(TYPE, r#type);
                let number = sequence.name(label.name, |its| {
                    new.get_or_insert_default().event_names.push(its);
                });
                event.number(NAME, number);
            });
            if let Some(new) = new {
                packet.message(INTERNED_DATA, |out| out.encode(&new));
            }
        });
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
        let mut sequence = Sequence::default();
        let mut end = Wire(&mut sequence.end);
        end.number(SEQUENCE, u64::from(id) + 2);
        end.message(TRACK_EVENT, |event| event.number(TYPE, SLICE_END));
        self.sequences.push(sequence);
    }

    fn begin(&mut self, track: TrackId, at: u64, label: &Label<'_>) {
        self.labelled(track, at, SLICE_BEGIN, label);
    }

    fn end(&mut self, track: TrackId, at: u64) {
        let sequence = &mut self.sequences[track as usize];
        let step = sequence.step(at);
        Wire(&mut self.out).message(PACKET, |packet| {
            packet.number(TIMESTAMP, step);
            packet.0.extend_from_slice(&sequence.end);
        });
    }

    fn instant(&mut self, track: TrackId, at: u64, label: &Label<'_>) {
        self.labelled(track, at, INSTANT, label);
    }

    fn counter(&mut self, track: TrackId, at: u64, value: f64) {
        let is_whole = value.fract() == 0.0 && value.abs() < 2f64.powi(53);
        self.event(track, at, |event| {
            event.number(TYPE, COUNTER);
            match is_whole {
                true => event.number(COUNTER_VALUE, (value as i64).cast_unsigned()),
                false => event.double(DOUBLE_COUNTER_VALUE, value),
            }
        });
    }

    /// A trace may end anywhere between packets.
    fn finish(&mut self) {}

    fn take(&mut self) -> Vec<u8> {
        // About as much comes until the next time.
        let next = Vec::with_capacity(self.out.len());
        mem::replace(&mut self.out, next)
    }
}
