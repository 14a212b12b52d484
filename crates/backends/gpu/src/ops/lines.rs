//! Lines of elements, and how groups share them: the Rust side of `lines.h`.

use rustorch_ir::Layout;
use rustorch_runtime::Step;

use super::views::{nearest, split, walk};
use crate::driver::Limits;
use crate::kernel::{Kernel, accumulator};

/// Work-items of a group. Lanes of a processor take turns, so that many of them would only
/// go through the same memory many times.
pub(super) fn group(limits: &Limits) -> usize {
    let most = if limits.is_processor { 16 } else { 256 };
    1 << most.min(limits.max_group.max(1)).ilog2()
}

/// Groups that keep the device busy.
fn enough_groups(limits: &Limits) -> usize {
    const EACH: usize = 4;
    limits.compute_units.saturating_mul(EACH)
}

/// Elements of a line that a lane goes through before another one is worth its cost.
const PER_LANE: usize = 4;

/// Elements for each lane of a segment that is worth a group of its own.
const PER_SEGMENT: usize = 16;

/// Numbers of elements that lanes may keep in registers.
const HELD: [usize; 3] = [4, 16, 32];

/// Lines side by side that are read at once, where their elements are far apart.
const SIDE_BY_SIDE: usize = 32;

/// How a group's lanes are shared out: `lines` × `team` of them.
pub(super) struct Tile {
    /// Lines of a group.
    pub(super) lines: usize,
    /// Lanes for each.
    pub(super) team: usize,
    /// Are neighbouring lanes at different lines?
    pub(super) is_across: bool,
}

impl Tile {
    /// For `count` lines of `len` elements, the lines at positions `lines` and each one's
    /// elements at `along`.
    pub(super) fn new(limits: &Limits, lines: &Layout, along: &Layout) -> Self {
        let group = group(limits);
        let (count, len) = (lines.elements().max(1), along.elements().max(1));
        let is_across = match (nearest(lines), nearest(along)) {
            (Some(lines), Some(along)) => lines < along,
            _ => false,
        };
        let team = if is_across {
            let enough = enough_groups(limits);
            let mut side = group;
            while side > SIDE_BY_SIDE && count.div_ceil(side) < enough {
                side /= 2;
            }
            group / side
        } else {
            len.div_ceil(PER_LANE).next_power_of_two()
        };
        let team = team.min(len.next_power_of_two()).min(group);
        Self {
            lines: group / team,
            team,
            is_across,
        }
    }

    /// Groups for `count` lines.
    pub(super) fn groups(&self, count: usize) -> usize {
        count.div_ceil(self.lines)
    }

    /// Elements of `count` lines of `len` that a group goes through: all of a line's, or fewer
    /// where otherwise there were not groups enough. At least 1.
    pub(super) fn segment(&self, limits: &Limits, count: usize, len: usize) -> usize {
        let most = len / (self.team * PER_SEGMENT);
        let enough = enough_groups(limits).div_ceil(self.groups(count).max(1));
        match enough.min(most) {
            0 | 1 => len.max(1),
            segments => len.div_ceil(segments).next_multiple_of(self.team),
        }
    }

    /// The parameters that `lines.h` asks for.
    pub(super) fn declare(&self, kernel: &mut Kernel) {
        let (line_step, member_step) = match self.is_across {
            true => (1, self.lines),
            false => (self.team, 1),
        };
        kernel.word("lines", self.lines);
        kernel.word("team", self.team);
        kernel.word("line_step", line_step);
        kernel.word("member_step", member_step);
    }
}

/// The kernel `name` of `text`, which goes through whole lines along `dim` of operand 0 of
/// `step` and writes lines of the result. They are seen as `views` of one shape.
pub(super) fn line_kernel(
    name: &'static str,
    text: &'static str,
    step: &Step,
    views: [&Layout; 2],
    dim: usize,
    limits: &Limits,
) -> Kernel {
    let [(x_starts, x_along), (y_starts, y_along)] = views.map(|view| split(view, dim));
    let (count, len) = (x_starts.elements(), x_along.elements());
    let tile = Tile::new(limits, &x_starts, &x_along);
    let mut kernel = Kernel::new(name, text, group(limits) as u32);
    let dtype = step.output.ty.dtype;
    let each = len.div_ceil(tile.team);
    kernel.define_dtype("X", dtype);
    kernel.define("ACCUMULATOR", accumulator(dtype));
    kernel.define(
        "HELD",
        HELD.into_iter().find(|&held| each <= held).unwrap_or(0),
    );
    kernel.read("x", &step.inputs[0]);
    kernel.write("y", &step.output);
    tile.declare(&mut kernel);
    walk(&mut kernel, "starts", [("x", &x_starts), ("y", &y_starts)]);
    kernel.word("count", count);
    kernel.word("len", len);
    kernel.word("x_step", x_along.strides[0]);
    kernel.word("y_step", y_along.strides[0]);
    kernel.groups(tile.groups(count), 1, 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    const GPU: Limits = Limits {
        max_group: 1024,
        local_bytes: 48 << 10,
        max_buffer: 1 << 32,
        memory: 1 << 34,
        has_f64: true,
        compute_units: 100,
        is_processor: false,
    };

    /// The tile for sums of a contiguous matrix along `dim`, and how long segments are.
    fn along(rows: usize, columns: usize, dim: usize) -> (Tile, usize) {
        let matrix = Layout::contiguous(&[rows, columns].into());
        let (starts, along) = split(&matrix, dim);
        let tile = Tile::new(&GPU, &starts, &along);
        let segment = tile.segment(&GPU, starts.elements(), along.elements());
        (tile, segment)
    }

    #[test]
    fn all_lanes_have_a_line() {
        for rows in [1, 3, 100, 5000] {
            for columns in [1, 7, 300, 70_000] {
                for dim in [0, 1] {
                    let (tile, segment) = along(rows, columns, dim);
                    assert_eq!(tile.lines * tile.team, group(&GPU), "{rows} × {columns}");
                    assert!((1..=[rows, columns][dim]).contains(&segment));
                }
            }
        }
    }

    #[test]
    fn neighbouring_lanes_read_neighbours() {
        let (rows, _) = along(4096, 4096, 1);
        assert!(!rows.is_across && rows.team == group(&GPU));
        let (columns, _) = along(4096, 4096, 0);
        assert!(columns.is_across && columns.lines >= SIDE_BY_SIDE);
        let (short, _) = along(100_000, 8, 1);
        assert!(!short.is_across && short.lines > short.team);
    }

    #[test]
    fn few_long_lines_are_cut() {
        let len = 64 << 20;
        let (tile, segment) = along(1, len, 1);
        assert!(len / segment >= GPU.compute_units && segment.is_multiple_of(tile.team));
        let (_, segment) = along(len, 2, 0);
        assert!(len / segment >= GPU.compute_units);
        assert_eq!(along(100_000, 4096, 1).1, 4096);
        assert_eq!(along(1, 4096, 1).1, 4096);
    }
}
