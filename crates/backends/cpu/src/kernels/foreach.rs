//! Elementwise operations on tensors of several groups, and a number of each.

use std::sync::OnceLock;

use rustorch_ir::{Op, OpKind, Signature};
use rustorch_runtime::{KernelEntry, KernelTable, Layouts};

use crate::element::is_known;
use crate::launch::Launch;

pub(crate) const UPDATES: KernelEntry<Launch> = KernelEntry {
    kind: OpKind::Foreach,
    accepts,
    layouts: Layouts::Contiguous,
    launch: Launch::Foreach,
};

pub(crate) const NUMBERS: KernelEntry<Launch> = KernelEntry {
    kind: OpKind::ForeachReduce,
    accepts,
    layouts: Layouts::Contiguous,
    launch: Launch::ForeachReduce,
};

/// Is there a function for each operation?
fn accepts(s: &Signature) -> bool {
    static TABLE: OnceLock<KernelTable<Launch>> = OnceLock::new();
    let body = match s.op {
        Op::Foreach(op) => &op.body,
        Op::ForeachReduce(op) => &op.each.body,
        _ => return false,
    };
    let table = TABLE.get_or_init(super::table);
    body.nodes().iter().all(|node| match node.op.kind() {
        OpKind::Assign | OpKind::Reduce => true,
        _ => body.with_signature(node, |s| {
            let is_known = s.types().all(|ty| is_known(ty.dtype));
            is_known && table.find(s).is_some_and(|kernel| kernel.launch.fuses())
        }),
    })
}
