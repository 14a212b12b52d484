//! Perfetto's own format: a `Trace` of its `TrackEvent`s, as `protos/perfetto/trace` of its sources
//! defines them. Field numbers are those of these definitions.
//!
//! It is kept small: each track has its own sequence of packets. Its defaults name the track and a
//! clock that counts from packet to packet. Names are written once in each.
//!
//! Events are nearly all of a trace. They are written [field by field](Wire). All other packets are messages
//! that `prost` encodes: building one for each event costs many times as much as writing it.

use std::time::{SystemTime, UNIX_EPOCH};

use foldhash::fast::RandomState;
use indexmap::IndexMap;
use prost::Message;
use smallvec::SmallVec;

use crate::names::Names;
use crate::timeline::{
    Category, Form, FormId, NOTES, NoteName, Sink, Track, TrackId, TrackKind, Unit,
};

/// Clocks: of the trace, of the calendar, and the one that counts from packet to packet.
const BOOTTIME: u32 = 6;
const REALTIME: u32 = 1;
const STEPS: u32 = 64;

/// Types of events.
const SLICE_BEGIN: u8 = 1;
const SLICE_END: u8 = 2;
const INSTANT: u8 = 3;
const COUNTER: u8 = 4;

/// Fields of a trace, of its packets, and of their events.
const PACKET: u8 = 1;
const TIMESTAMP: u8 = 8;
const SEQUENCE: u8 = 10;
const TRACK_EVENT: u8 = 11;
const CATEGORY: u8 = 3;
const ANNOTATION: u8 = 4;
const TYPE: u8 = 9;
const NAME: u8 = 10;
const COUNTER_VALUE: u8 = 30;
const DOUBLE_COUNTER_VALUE: u8 = 44;

/// Fields of an event's annotations.
const ANNOTATION_NAME: u8 = 1;
const ANNOTATION_COUNT: u8 = 3;
const ANNOTATION_TEXT: u8 = 17;

/// Interned texts may be forgotten: here a sequence begins.
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
    /// The buffer in which packets of events are built. One copy adds many of them to the trace.
    room: Box<[u8; ROOM]>,
    /// Number of these bytes.
    filled: usize,
}

/// Bytes of the events that are put together at once, at most: the longest length in one byte, and the bytes
/// after it. So no place has to be checked.
const MOST: usize = 256 + 32;

/// Bytes of events that are added to a trace at once, at most.
const ROOM: usize = 1 << 12;

/// The packets of a track.
struct Sequence {
    /// Its number.
    id: u32,
    /// The timestamp of the last packet.
    at: u64,
    /// Offset of the event's length in its packet.
    event: u8,
    /// The end of a slice.
    end: Piece<16>,
    forms: IndexMap<Form, Prepared, RandomState>,
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

    /// An event at a moment, with more fields that `fill` writes.
    fn event<'a>(
        &mut self,
        out: Wire<'a>,
        at: u64,
        r#type: u8,
        fill: impl FnOnce(Wire<'a>) -> Wire<'a>,
    ) -> Wire<'a> {
        let (start, step) = (out.length, self.step(at));
        let filled = fill(out.event(self.id, r#type));
        filled.finish(start, self.event, step)
    }

    /// A slice of a form.
    fn slice<'a>(
        &mut self,
        out: Wire<'a>,
        at: u64,
        end: u64,
        form: FormId,
        values: &[u64; NOTES],
    ) -> Wire<'a> {
        let (start, step) = (out.length, self.step(at));
        let Prepared { begin, notes } = &self.forms[form];
        let notes = notes.iter().zip(values);
        let noted = notes.fold(out.piece(begin), |out, (note, value)| {
            let start = out.length;
            out.piece(note).varint(*value).close(start.wrapping_add(1))
        });
        let begun = noted.finish(start, self.event, step);
        let (start, step) = (begun.length, self.step(end));
        begun.piece(&self.end).timed(start, step)
    }
}

/// Encoding of a field: as a whole number, as eight bytes, or with its length in front.
const NUMBER: u8 = 0;
const EIGHT_BYTES: u8 = 1;
const MESSAGE: u8 = 2;

/// The tag of a field with a number below 16.
const fn key(field: u8, wire: u8) -> u8 {
    field << 3 | wire
}

/// The tag of a field with a number from 16 on.
const fn long_key(field: u8, wire: u8) -> [u8; 2] {
    [key(field, wire) | 0x80, field >> 4]
}

/// Packets of events, as protocol buffers have them. Bytes that are the same in all are written at once.
///
/// Lengths of messages are one byte: with three notes and the largest numbers a packet has 84, and two are together.
struct Wire<'a> {
    bytes: &'a mut [u8; MOST],
    /// Number of these.
    length: u8,
}

impl<'a> Wire<'a> {
    fn new(bytes: &'a mut [u8; MOST]) -> Self {
        Self { bytes, length: 0 }
    }

    /// Adds a few bytes.
    fn put<const N: usize>(mut self, bytes: [u8; N]) -> Self {
        let at = usize::from(self.length);
        self.bytes[at..at + N].copy_from_slice(&bytes);
        self.length = self.length.wrapping_add(N as u8);
        self
    }

    /// Adds a prepared piece.
    fn piece<const N: usize>(mut self, piece: &Piece<N>) -> Self {
        let at = usize::from(self.length);
        self.bytes[at..at + N].copy_from_slice(&piece.bytes);
        self.length = self.length.wrapping_add(piece.length);
        self
    }

    fn varint(self, value: u64) -> Self {
        let [low, high] = [value as u8, (value >> 7) as u8];
        match value {
            ..0x80 => self.put([low]),
            0x80..0x4000 => self.put([low | 0x80, high]),
            _ => self.put([low | 0x80, high | 0x80]).varint(value >> 14),
        }
    }

    /// A message ends, whose length is to be at that place.
    fn close(self, length: u8) -> Self {
        self.bytes[usize::from(length)] = self.length.wrapping_sub(length).wrapping_sub(1);
        self
    }

    /// An event of a sequence begins, and the packet that it is in.
    fn event(self, sequence: u32, r#type: u8) -> Self {
        let packet = self.put([key(PACKET, MESSAGE), 0, key(SEQUENCE, NUMBER)]);
        let its = packet.varint(sequence.into());
        its.put([key(TRACK_EVENT, MESSAGE), 0, key(TYPE, NUMBER), r#type])
    }

    /// The name of the event.
    fn label(self, name: usize, category: Category) -> Self {
        let named = self.put([key(NAME, NUMBER)]).varint(iid(name));
        match category {
            // All launches of a device's track are of one.
            Category::Launch => named,
            other => named.put([key(CATEGORY, NUMBER), iid(other as usize) as u8]),
        }
    }

    /// A note of the event begins.
    fn note(self, name: NoteName) -> Self {
        let name = iid(name as usize) as u8;
        self.put([
            key(ANNOTATION, MESSAGE),
            0,
            key(ANNOTATION_NAME, NUMBER),
            name,
        ])
    }

    /// Ends the packet that began at `start`. The event's length is at this offset, and the time since the last
    /// packet is given.
    fn finish(self, start: u8, event: u8, step: u64) -> Self {
        self.close(start.wrapping_add(event)).timed(start, step)
    }

    /// The packet ends that began at `start`, so long after the one before.
    fn timed(self, start: u8, step: u64) -> Self {
        let timed = self.put([key(TIMESTAMP, NUMBER)]).varint(step);
        timed.close(start.wrapping_add(1))
    }
}

/// Bytes that are the same in many packets. The first `length` count: a fixed number is copied faster.
struct Piece<const N: usize> {
    bytes: [u8; N],
    length: u8,
}

impl<const N: usize> Piece<N> {
    fn new(fill: impl FnOnce(Wire<'_>) -> Wire<'_>) -> Self {
        let mut room = [0; MOST];
        let length = fill(Wire::new(&mut room)).length;
        let mut bytes = [0; N];
        bytes.copy_from_slice(&room[..N]);
        Self { bytes, length }
    }
}

/// The common part of slices of a form.
struct Prepared {
    /// The beginning of one, up to its notes.
    begin: Piece<32>,
    /// Each note, up to its value.
    notes: SmallVec<[Piece<7>; NOTES]>,
}

/// The track of this process, which threads are of.
const PROCESS: u64 = 1;

/// The identity of a track among other traces that are viewed together.
fn uuid(track: TrackId) -> u64 {
    u64::from(track) + 2
}

/// The interned values with numbers from 0 on.
fn iid(number: usize) -> u64 {
    number as u64 + 1
}

/// The sequence of a track's packets.
fn sequence_id(track: TrackId) -> u32 {
    track + 2
}

/// Adds a packet.
fn write(out: &mut Vec<u8>, packet: &Packet) {
    out.push(key(PACKET, MESSAGE));
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
            room: Box::new([0; ROOM]),
            filled: 0,
        }
    }

    /// Adds the events of a track that `write` writes.
    fn events(
        &mut self,
        track: TrackId,
        write: impl for<'a> FnOnce(&mut Sequence, Wire<'a>) -> Wire<'a>,
    ) {
        if self.filled > ROOM - MOST {
            self.empty();
        }
        let sequence = &mut self.sequences[track as usize];
        if let Some(room) = self.room[self.filled..].first_chunk_mut() {
            self.filled += usize::from(write(sequence, Wire::new(room)).length);
        }
    }

    /// Adds the events that were put together.
    #[cold]
    fn empty(&mut self) {
        self.out.extend_from_slice(&self.room[..self.filled]);
        self.filled = 0;
    }

    /// Adds a packet that is not an event.
    fn packet(&mut self, packet: &Packet) {
        self.empty();
        write(&mut self.out, packet);
    }

    /// Number of a name in events of a track.
    fn name(&mut self, track: TrackId, name: &str) -> usize {
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

    /// Number of a text in notes of a track.
    fn text(&mut self, track: TrackId, text: &str) -> usize {
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
        number
    }

    /// Defines the numbers of names for later events of a track.
    fn intern(&mut self, track: TrackId, its: InternedData) {
        let packet = Packet {
            interned_data: Some(its),
            trusted_packet_sequence_id: Some(sequence_id(track)),
            ..Packet::default()
        };
        self.packet(&packet);
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
        self.packet(&described);
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
        self.packet(&begun);
        let id = sequence_id(id);
        // Behind an event's length is its type.
        let mut event = 0;
        let end = Piece::new(|out| {
            let begun = out.event(id, SLICE_END);
            event = begun.length.wrapping_sub(3);
            begun.close(event)
        });
        self.sequences.push(Sequence {
            id,
            at: 0,
            event,
            end,
            forms: IndexMap::default(),
            names: Names::default(),
            texts: Names::default(),
        });
    }

    fn begin(&mut self, track: TrackId, at: u64, name: &str, category: Category) {
        let name = self.name(track, name);
        self.events(track, |its, out| {
            its.event(out, at, SLICE_BEGIN, |event| event.label(name, category))
        });
    }

    fn end(&mut self, track: TrackId, at: u64) {
        self.events(track, |its, out| {
            its.event(out, at, SLICE_END, |event| event)
        });
    }

    fn form(&mut self, track: TrackId, form: &Form) -> FormId {
        if let Some(known) = self.sequences[track as usize].forms.get_index_of(form) {
            return known;
        }
        let name = self.name(track, &form.name);
        let its = &mut self.sequences[track as usize];
        let note = |name| Piece::new(|out| out.note(name).put([key(ANNOTATION_COUNT, NUMBER)]));
        let prepared = Prepared {
            begin: Piece::new(|out| out.event(its.id, SLICE_BEGIN).label(name, form.category)),
            notes: form.notes.iter().map(|name| note(*name)).collect(),
        };
        its.forms.insert_full(form.clone(), prepared).0
    }

    fn slice(&mut self, track: TrackId, at: u64, end: u64, form: FormId, values: &[u64; NOTES]) {
        self.events(track, |its, out| its.slice(out, at, end, form, values));
    }

    fn instant(
        &mut self,
        track: TrackId,
        at: u64,
        name: &str,
        category: Category,
        notes: &[(NoteName, &str)],
    ) {
        let name = self.name(track, name);
        let texts: SmallVec<[_; NOTES]> = notes
            .iter()
            .map(|(name, text)| (*name, self.text(track, text)))
            .collect();
        self.events(track, |its, out| {
            its.event(out, at, INSTANT, |event| {
                let labelled = event.label(name, category);
                texts.iter().fold(labelled, |out, (name, text)| {
                    let start = out.length;
                    let field = long_key(ANNOTATION_TEXT, NUMBER);
                    let noted = out.note(*name).put(field).varint(iid(*text));
                    noted.close(start.wrapping_add(1))
                })
            })
        });
    }

    fn counter(&mut self, track: TrackId, at: u64, value: f64) {
        let is_whole = value.fract() == 0.0 && value.abs() < 2f64.powi(53);
        self.events(track, |its, out| {
            its.event(out, at, COUNTER, |event| match is_whole {
                true => {
                    let field = long_key(COUNTER_VALUE, NUMBER);
                    event.put(field).varint((value as i64).cast_unsigned())
                }
                false => {
                    let field = long_key(DOUBLE_COUNTER_VALUE, EIGHT_BYTES);
                    event.put(field).put(value.to_le_bytes())
                }
            })
        });
    }

    /// A trace may end anywhere between packets.
    fn finish(&mut self) {}

    fn written(&mut self) -> &mut Vec<u8> {
        self.empty();
        &mut self.out
    }
}

#[cfg(test)]
mod tests {
    use prost::encoding::encode_varint;

    use super::*;

    #[test]
    fn numbers_of_all_lengths_are_written_as_protocol_buffers_have_them() {
        for bits in 0..=64 {
            let most = u64::MAX.checked_shr(64 - bits).unwrap_or(0);
            for number in [most, most.wrapping_add(1)] {
                let mut expected = Vec::new();
                encode_varint(number, &mut expected);
                let written = Piece::<16>::new(|out| out.varint(number));
                assert_eq!(written.bytes[..written.length.into()], expected);
            }
        }
    }
}
