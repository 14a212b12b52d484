//! Messages between ranks, however they travel.

use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::call::Signature;
use crate::{Cause, Failure};

/// Bytes of a message. Messages to several ranks share them.
pub(crate) type Payload = Arc<Vec<u8>>;

/// Carries frames between ranks. Frames from one rank to another arrive in order.
pub(crate) trait Link: Send + Sync {
    /// The number of this rank. It stays the same in all epochs.
    fn id(&self) -> usize;

    /// The time since some moment.
    fn now(&self) -> Duration;

    /// Waits until a rank has taken most of what was sent. False if it has not at the time `until`.
    fn wait_for_room(&self, to: usize, until: Duration) -> bool;

    /// Sends a frame, without waiting. If it cannot arrive, an event says so.
    fn send(&self, to: usize, frame: Frame);

    /// The next event and the rank that caused it. None if nothing happens before the time `until`.
    fn next(&self, until: Duration) -> Option<(usize, Event)>;
}

#[derive(Debug)]
pub(crate) enum Event {
    Frame(Frame),
    /// Nothing more will come from the rank.
    Gone(Cause),
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Frame {
    pub(crate) epoch: u64,
    pub(crate) body: Body,
    #[serde(skip)]
    pub(crate) payload: Payload,
}

impl Frame {
    /// A frame without a payload.
    pub(crate) fn new(epoch: u64, body: Body) -> Self {
        Self {
            epoch,
            body,
            payload: Payload::default(),
        }
    }
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) enum Body {
    /// A part of a call.
    Data(Data),
    /// The epoch ends. These findings of ranks are known to the sender.
    Abort(Vec<Failure>),
    /// A rank wants to be a member of the epoch.
    Join,
    /// These ranks are the members of the epoch.
    Commit(Vec<usize>),
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Data {
    pub(crate) signature: Signature,
    /// How many the sender sent to this receiver before.
    pub(crate) number: u64,
}
