//! Perfetto's own format: a `Trace` of its `TrackEvent`s, as `protos/perfetto/trace` of its sources
//! defines them. Field numbers are those of these definitions.
//!
//! It is kept small: each track is a sequence of packets of its own, whose defaults name the track
//! and a clock that counts from packet to packet, and names are written once in each.
//!
//! Events are nearly all of a trace. They are written [field by field](Wire), where everything else is a message
//! that `prost` encodes: building one for each costs many times what it takes to write it.

use std::time::{SystemTime, UNIX_EPOCH};

use prost::Message;

use crate::names::Names;
use crate::timeline::{
    Category, Label, NameId, Note, NoteName, Sink, Track, TrackId, TrackKind, Unit,
};

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
const CATEGORY: u32 = 3;
const ANNOTATION: u32 = 4;
const TYPE: u32 = 9;
const NAME: u32 = 10;
const COUNTER_VALUE: u32 = 30;
const DOUBLE_COUNTER_VALUE: u32 = 44;

/// Fields of an event's annotations.
const ANNOTATION_NAME: u32 = 1;
const ANNOTATION_COUNT: u32 = 3;
const ANNOTATION_TEXT: u32 = 17;

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
pub(crate) struct InternedData {
    #[prost(message, repeated, tag = "1")]
    pub(crate) event_categories: Vec<Interned>,
    #[prost(message, repeated, tag = "2")]
    pub(crate) event_names: Vec<Interned>,
    #[prost(message, repeated, tag = "3")]
    pub(crate) debug_annotation_names: Vec<Interned>,
    #[prost(message, repeated, tag = "29")]
    pub(crate) debug_annotation_string_values: Vec<Interned>,
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
    /// Where packets of events are put together.
    room: [u8; 256],
}

/// The packets of a track.
struct Sequence {
    /// Its number.
    id: u32,
    /// Of the last packet.
    at: u64,
    names: Names,
    /// Texts of notes.
    texts: Names,
}

/// All values of an enumeration, under the numbers that they have.
fn interned<T: Copy>(all: &[T], name: fn(T) -> &'static str) -> Vec<Interned> {
    let numbered = all.iter().enumerate();
    numbered
        .map(|(number, &value)| Interned::new(number, name(value)))
        .collect()
}

impl Interned {
    fn new(number: usize, name: &str) -> Self {
        Self {
            iid: Some(iid(number)),
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

    /// An event at a moment, whose fields `fill` writes.
    fn event<'a>(
        &mut self,
        out: Wire<'a>,
        at: u64,
        fill: impl FnOnce(Wire<'a>) -> Wire<'a>,
    ) -> Wire<'a> {
        out.event(self.id, self.step(at), fill)
    }

    fn labelled<'a>(&mut self, out: Wire<'a>, at: u64, r#type: u64, label: &Label<'_>) -> Wire<'a> {
        let Label {
            name,
            category,
            notes,
        } = *label;
        let step = self.step(at);
        let texts = &mut self.texts;
        out.event(self.id, step, |event| {
            let mut event = event.number(TYPE, r#type).number(NAME, iid(name));
            // All launches of a device's track are of one.
            if category != Category::Launch {
                event = event.number(CATEGORY, iid(category as usize));
            }
            notes.iter().fold(event, |event, (name, note)| {
                let (field, value) = match note {
                    Note::Count(count) => (ANNOTATION_COUNT, *count),
                    Note::Text(text) => (ANNOTATION_TEXT, iid(texts.number(text).0)),
                };
                event.message(ANNOTATION, |annotation| {
                    annotation
                        .number(ANNOTATION_NAME, iid(*name as usize))
                        .number(field, value)
                })
            })
        })
    }

    fn end<'a>(&mut self, out: Wire<'a>, at: u64) -> Wire<'a> {
        self.event(out, at, |event| event.number(TYPE, SLICE_END))
    }
}

/// Packets of events, as protocol buffers have them: put together in a place of their own, as to add each byte to the
/// trace by itself would cost several times as much.
///
/// Lengths of messages are one byte: with three notes and the largest numbers a packet has 84, and two are together.
struct Wire<'a> {
    bytes: &'a mut [u8; 256],
    /// How many of these there are.
    length: u8,
}

impl<'a> Wire<'a> {
    fn new(bytes: &'a mut [u8; 256]) -> Self {
        Self { bytes, length: 0 }
    }

    /// What was written.
    fn finish(self) -> &'a [u8] {
        &self.bytes[..usize::from(self.length)]
    }

    fn byte(mut self, byte: u8) -> Self {
        self.bytes[usize::from(self.length)] = byte;
        self.length = self.length.wrapping_add(1);
        self
    }

    fn varint(mut self, mut value: u64) -> Self {
        while value >= 0x80 {
            self = self.byte(value as u8 | 0x80);
            value >>= 7;
        }
        self.byte(value as u8)
    }

    /// A field with a whole number.
    fn number(self, field: u32, value: u64) -> Self {
        self.varint(u64::from(field) << 3).varint(value)
    }

    fn double(self, field: u32, value: f64) -> Self {
        let begun = self.varint(u64::from(field) << 3 | 1);
        value.to_le_bytes().into_iter().fold(begun, Self::byte)
    }

    /// A field with what `fill` writes, which has its length in front.
    fn message(self, field: u32, fill: impl FnOnce(Self) -> Self) -> Self {
        let begun = self.varint(u64::from(field) << 3 | 2).byte(0);
        let start = begun.length;
        let filled = fill(begun);
        filled.bytes[usize::from(start.wrapping_sub(1))] = filled.length.wrapping_sub(start);
        filled
    }

    /// An event of a sequence whose fields `fill` writes, so long after the one before.
    fn event(self, sequence: u32, step: u64, fill: impl FnOnce(Self) -> Self) -> Self {
        self.message(PACKET, |packet| {
            packet
                .number(TIMESTAMP, step)
                .number(SEQUENCE, sequence.into())
                .message(TRACK_EVENT, fill)
        })
    }
}

/// The track of this process, which threads are of.
const PROCESS: u64 = 1;

/// What tells a track from those of other traces that are looked at together.
fn uuid(track: TrackId) -> u64 {
    u64::from(track) + 2
}

/// What is interned under a number that counts from 0 on.
fn iid(number: usize) -> u64 {
    number as u64 + 1
}

/// The sequence of a track's packets.
fn sequence_id(track: TrackId) -> u32 {
    track + 2
}

/// Adds a packet.
fn write(out: &mut Vec<u8>, packet: &Packet) {
    out.push((PACKET << 3 | 2) as u8);
    // A vector takes whatever is written to it.
    let _ = packet.encode_length_delimited(out);
}

impl Perfetto {
    pub(crate) fn new(process: &str) -> Self {
        let date = SystemTime::now().duration_since(UNIX_EPOCH);
        let date = date.map_or(0, |date| date.as_nanos() as u64);
        let mut out = Vec::new();
        let snapshot = Packet {
            clock_snapshot: Some(ClockSnapshot {
                clocks: vec![clock(BOOTTIME, 0), clock(REALTIME, date)],
                primary_trace_clock: Some(BOOTTIME),
            }),
            trusted_packet_sequence_id: Some(1),
            ..Packet::default()
        };
        write(&mut out, &snapshot);
        let descriptor = Packet {
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
        };
        write(&mut out, &descriptor);
        Self {
            out,
            sequences: Vec::new(),
            room: [0; 256],
        }
    }

    /// Adds the events of a track that `write` writes.
    fn events(
        &mut self,
        track: TrackId,
        write: impl for<'a> FnOnce(&mut Sequence, Wire<'a>) -> Wire<'a>,
    ) {
        let sequence = &mut self.sequences[track as usize];
        let written = write(sequence, Wire::new(&mut self.room));
        self.out.extend_from_slice(written.finish());
    }

    /// Tells what events of a track call by numbers from now on.
    fn intern(&mut self, track: TrackId, its: InternedData) {
        let packet = Packet {
            interned_data: Some(its),
            trusted_packet_sequence_id: Some(sequence_id(track)),
            ..Packet::default()
        };
        write(&mut self.out, &packet);
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
        let sequence = Some(sequence_id(id));
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
        let described = Packet {
            track_descriptor: Some(descriptor),
            trusted_packet_sequence_id: sequence,
            ..Packet::default()
        };
        write(&mut self.out, &described);
        let steps = Clock {
            is_incremental: Some(true),
            ..clock(STEPS, 0)
        };
        let begun = Packet {
            clock_snapshot: Some(ClockSnapshot {
                clocks: vec![clock(BOOTTIME, 0), steps],
                primary_trace_clock: None,
            }),
            trusted_packet_sequence_id: sequence,
            interned_data: Some(InternedData {
                event_categories: interned(Category::ALL, Category::name),
                debug_annotation_names: interned(NoteName::ALL, NoteName::name),
                ..InternedData::default()
            }),
            sequence_flags: Some(STATE_CLEARED),
            trace_packet_defaults: Some(PacketDefaults {
                track_event_defaults: Some(EventDefaults {
                    track_uuid: Some(uuid(id)),
                }),
                timestamp_clock_id: Some(STEPS),
            }),
            ..Packet::default()
        };
        write(&mut self.out, &begun);
        self.sequences.push(Sequence {
            id: sequence_id(id),
            at: 0,
            names: Names::default(),
            texts: Names::default(),
        });
    }

    fn name(&mut self, track: TrackId, name: &str) -> NameId {
        let (number, is_new) = self.sequences[track as usize].names.number(name);
        if is_new {
            self.intern(
                track,
                InternedData {
                    event_names: vec![Interned::new(number, name)],
                    ..InternedData::default()
                },
            );
        }
        number
    }

    fn begin(&mut self, track: TrackId, at: u64, label: &Label<'_>) {
        self.events(track, |its, out| its.labelled(out, at, SLICE_BEGIN, label));
    }

    fn end(&mut self, track: TrackId, at: u64) {
        self.events(track, |its, out| its.end(out, at));
    }

    fn slice(&mut self, track: TrackId, at: u64, end: u64, label: &Label<'_>) {
        self.events(track, |its, out| {
            let begun = its.labelled(out, at, SLICE_BEGIN, label);
            its.end(begun, end)
        });
    }

    fn instant(&mut self, track: TrackId, at: u64, label: &Label<'_>) {
        for (_, note) in label.notes {
            let Note::Text(text) = note else { continue };
            let (number, is_new) = self.sequences[track as usize].texts.number(text);
            if is_new {
                self.intern(
                    track,
                    InternedData {
                        debug_annotation_string_values: vec![Interned::new(number, text)],
                        ..InternedData::default()
                    },
                );
            }
        }
        self.events(track, |its, out| its.labelled(out, at, INSTANT, label));
    }

    fn counter(&mut self, track: TrackId, at: u64, value: f64) {
        let is_whole = value.fract() == 0.0 && value.abs() < 2f64.powi(53);
        self.events(track, |its, out| {
            its.event(out, at, |event| {
                let event = event.number(TYPE, COUNTER);
                match is_whole {
                    true => event.number(COUNTER_VALUE, (value as i64).cast_unsigned()),
                    false => event.double(DOUBLE_COUNTER_VALUE, value),
                }
            })
        });
    }

    /// A trace may end anywhere between packets.
    fn finish(&mut self) {}

    fn written(&mut self) -> &mut Vec<u8> {
        &mut self.out
    }
}
