//! Frames as bytes.

use std::io::{self, ErrorKind, Read};

use serde::{Deserialize, Serialize};

use crate::link::{Frame, Payload};

/// A message between processes.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum Packet {
    Frame(Frame),
    /// The sender lives.
    Alive,
    /// The sender leaves the group.
    Leave,
    /// The receiver has seen that the sender leaves.
    Seen,
}

/// The longest header.
const LONGEST: u32 = 16 << 20;

/// The length of the packet that begins with these bytes. None if they are too few to know.
#[cfg(all(unix, feature = "mpi"))]
pub(crate) fn length(bytes: &[u8]) -> Option<usize> {
    let (header, rest) = bytes.split_first_chunk()?;
    let (payload, _) = rest.split_first_chunk()?;
    Some(12 + u32::from_le_bytes(*header) as usize + u64::from_le_bytes(*payload) as usize)
}

impl Packet {
    pub(crate) fn payload(&self) -> Option<&Payload> {
        match self {
            Packet::Frame(frame) => Some(&frame.payload),
            _ => None,
        }
    }

    /// All that precedes the payload: lengths, and the header as JSON.
    pub(crate) fn header(&self) -> io::Result<Vec<u8>> {
        let json = serde_json::to_vec(self)?;
        let payload = self.payload().map_or(0, |payload| payload.len());
        let lengths = [
            &(json.len() as u32).to_le_bytes()[..],
            &(payload as u64).to_le_bytes(),
        ];
        Ok([&lengths.concat(), &json[..]].concat())
    }

    pub(crate) fn read(from: &mut impl Read) -> io::Result<Self> {
        let (mut header, mut payload) = ([0; 4], [0; 8]);
        from.read_exact(&mut header)?;
        from.read_exact(&mut payload)?;
        let (header, payload) = (u32::from_le_bytes(header), u64::from_le_bytes(payload));
        if header > LONGEST {
            return Err(io::Error::new(
                ErrorKind::InvalidData,
                "this is not a message of a rank",
            ));
        }
        let json = read_bytes(from, header.into())?;
        let mut packet: Packet = serde_json::from_slice(&json)?;
        let bytes = read_bytes(from, payload)?;
        if let Packet::Frame(frame) = &mut packet {
            frame.payload = Payload::new(bytes);
        }
        Ok(packet)
    }
}

/// Memory is taken as bytes come, so that a wrong length takes none.
fn read_bytes(from: &mut impl Read, count: u64) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::with_capacity(count.min(1 << 20) as usize);
    match from.take(count).read_to_end(&mut bytes)? as u64 == count {
        true => Ok(bytes),
        false => Err(ErrorKind::UnexpectedEof.into()),
    }
}
