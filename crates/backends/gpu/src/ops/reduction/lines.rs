//! Lines of elements, and how groups share them: the Rust side of `lines.h`.

use rustorch_ir::{DType, Layout};
use rustorch_runtime::{Place, Step};

use crate::driver::Limits;
use crate::kernel::Kernel;
use crate::ops::views::{Memory, PARTS, WIDEST, nearest, split, walk};

/// Work-items of a group.
const GROUP: usize = 256;

/// The same where one group has to go through a long line.
const LARGE_GROUP: usize = 1024;

/// The same where they take turns: many of them would only go through the same memory many
/// times.
const PROCESSOR_GROUP: usize = 16;

/// Groups of a compute unit that keep it busy.
const GROUPS_OF_UNIT: usize = 8;

/// Elements of a line that a lane goes through before another one is worth its cost: where
/// lines are many, and where they are not.
const PER_LANE: [usize; 2] = [16, 4];

/// Lanes of a line that read whole pieces of memory: fewer of them for a line, and it has to be
/// short.
pub(in crate::ops) const NEIGHBOURS: usize = 32;

/// Elements for each lane of a segment that is worth its own group.
const PER_SEGMENT: usize = 16;

/// Vectors of a line that a lane loads before it looks at one.
pub(in crate::ops) const VECTORS: usize = 4;

/// Numbers that a lane adds one after the other in their own precision.
const LONGEST_CHAIN: usize = 256;

/// Numbers of elements that lanes may keep in registers.
const HELD: [usize; 3] = [4, 16, 32];

/// Sharing of a group's lanes: `lines` × `team` of them.
pub(in crate::ops) struct Tile {
    /// Lines of a group.
    pub(in crate::ops) lines: usize,
    /// Lanes for each.
    pub(in crate::ops) team: usize,
    /// Are neighbouring lanes at different lines?
    pub(in crate::ops) is_across: bool,
    /// Groups that keep the device busy.
    enough: usize,
}

impl Tile {
    /// For lines that begin at the positions `starts`, and each one's elements `along` from
    /// there.
    pub(in crate::ops) fn new(limits: &Limits, starts: &Layout, along: &Layout) -> Self {
        let tile = Self::with_group(limits, starts, along, GROUP);
        // Few groups across lines make up for it by their size: another launch would cost more.
        match tile.is_across && tile.groups(starts.elements()) < limits.compute_units {
            true => Self::with_group(limits, starts, along, LARGE_GROUP),
            false => tile,
        }
    }

    /// The same where lanes load `vector` neighbours at a time, if that is more than 1.
    pub(in crate::ops) fn of_vectors(
        limits: &Limits,
        starts: &Layout,
        along: &Layout,
        vector: usize,
    ) -> Self {
        let tile = Self::new(limits, starts, along);
        if vector == 1 {
            return tile;
        }
        let (count, vectors) = (starts.elements(), along.elements() / vector);
        let group = tile.lines * tile.team;
        let most = group.min(vectors.next_power_of_two());
        let mut team = most.min(vectors.div_ceil(VECTORS).next_power_of_two());
        let enough = tile.enough.saturating_mul(group);
        while team > NEIGHBOURS && count * team >= 2 * enough {
            team /= 2;
        }
        while team < most && count * team < enough / 2 {
            team *= 2;
        }
        Self {
            lines: group / team,
            team,
            ..tile
        }
    }

    /// A tile for lines with a group of `group` work-items each.
    pub(in crate::ops) fn of_groups(group: usize) -> Self {
        Self {
            lines: 1,
            team: group,
            is_across: false,
            enough: 0,
        }
    }

    /// A tile for lines of `len` elements, or vectors of them; each lane of a team has one.
    pub(in crate::ops) fn of_short_lines(limits: &Limits, len: usize) -> Self {
        let team = len.next_power_of_two();
        let group = 1 << GROUP.min(limits.max_group.max(team)).ilog2();
        Self {
            lines: group / team,
            team,
            is_across: false,
            enough: 0,
        }
    }

    /// The same for a kernel where a line is one group's.
    pub(in crate::ops) fn whole_lines(limits: &Limits, starts: &Layout, along: &Layout) -> Self {
        let tile = Self::new(limits, starts, along);
        let is_long = !tile.is_across && tile.held(along.elements()) == 0;
        match is_long {
            true => Self::with_group(limits, starts, along, LARGE_GROUP),
            false => tile,
        }
    }

    fn with_group(limits: &Limits, starts: &Layout, along: &Layout, group: usize) -> Self {
        let most = match limits.is_processor {
            true => PROCESSOR_GROUP,
            false => group,
        };
        let group = 1 << most.min(limits.max_group.max(1)).ilog2();
        let (count, len) = (starts.elements().max(1), along.elements().max(1));
        let enough = limits.compute_units.saturating_mul(GROUPS_OF_UNIT);
        let is_across = match (nearest(starts), nearest(along)) {
            (Some(starts), Some(along)) => starts < along,
            _ => false,
        };
        let team = if is_across {
            let mut side = group.min(count.next_power_of_two());
            while side > NEIGHBOURS && count.div_ceil(side) < enough {
                side /= 2;
            }
            group / side
        } else {
            let [many, few] = PER_LANE.map(|n| len.div_ceil(n).next_power_of_two().min(group));
            let is_enough = many >= NEIGHBOURS && count * many / group >= enough;
            if is_enough { many } else { few }
        };
        let team = team.min(len.next_power_of_two());
        Self {
            lines: group / team,
            team,
            is_across,
            enough,
        }
    }

    /// Work-items of a group.
    pub(in crate::ops) fn group(&self) -> u32 {
        (self.lines * self.team) as u32
    }

    /// Elements of a line of `len` that a lane keeps in registers; 0 if they are too many.
    pub(in crate::ops) fn held(&self, len: usize) -> usize {
        let each = len.div_ceil(self.team);
        HELD.into_iter().find(|&held| each <= held).unwrap_or(0)
    }

    /// Groups for `count` lines.
    pub(in crate::ops) fn groups(&self, count: usize) -> usize {
        count.div_ceil(self.lines)
    }

    /// Elements of `count` lines of `len` that a group goes through: all of a line's, or fewer
    /// where otherwise there were not groups enough. At least 1.
    pub(in crate::ops) fn segment(&self, count: usize, len: usize) -> usize {
        let most = len / (self.team * PER_SEGMENT);
        let enough = self.enough.div_ceil(self.groups(count).max(1));
        match enough.min(most) {
            0 | 1 => len.max(1),
            segments => len.div_ceil(segments).next_multiple_of(self.team),
        }
    }

    /// The parameters that `lines.h` asks for.
    pub(in crate::ops) fn declare(&self, kernel: &mut Kernel) {
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

/// Rows without gaps that teams hold in registers, see `rows.h`.
pub(in crate::ops) struct Rows {
    pub(in crate::ops) tile: Tile,
    /// Elements of a lane.
    pub(in crate::ops) held: usize,
    /// Number of neighbours among them.
    pub(in crate::ops) vector: usize,
}

impl Rows {
    /// Elements of a row that a group of any device can hold.
    pub(in crate::ops) const LONGEST: usize = 8192;

    /// Work-items of a group, where a row does not need more.
    const GROUP: usize = 128;

    /// Elements that a lane holds, where there may be more lanes.
    pub(in crate::ops) const HELD: usize = 24;

    /// Vectors for rows of `len` elements in all of these places.
    pub(in crate::ops) fn new(limits: &Limits, len: usize, places: &[&Place]) -> Self {
        let size = |place: &&Place| place.ty.dtype.size().unwrap_or(1);
        let widest = places.iter().map(size).max().unwrap_or(1);
        let vector = WIDEST / widest;
        // Vectors of the other dtypes are of 8 bytes at least.
        let fits = |place: &&Place| {
            let bytes = vector * size(place);
            PARTS.contains(&place.ty.dtype)
                && bytes >= WIDEST / 2
                && place.layout.offset.is_multiple_of(vector)
        };
        let fits = vector > 1 && len.is_multiple_of(vector) && places.iter().all(fits);
        let vector = if fits { vector } else { 1 };
        let vectors = len.div_ceil(vector).max(1);
        let most = match limits.is_processor {
            true => 1,
            false => 1 << limits.max_group.clamp(1, GROUP).ilog2(),
        };
        let held = |team: usize| vectors.div_ceil(team) * vector;
        let mut team = most.min(NEIGHBOURS).min(vectors.next_power_of_two());
        while team < most && held(team) > Self::HELD {
            team *= 2;
        }
        let group = most.min(Self::GROUP.max(team));
        Self {
            tile: Tile {
                lines: group / team,
                team,
                is_across: false,
                enough: limits.compute_units.saturating_mul(GROUPS_OF_UNIT),
            },
            held: held(team),
            vector,
        }
    }

    /// Rows that each group goes through, so that there are no more groups than keep the device busy.
    pub(in crate::ops) fn each(&self, count: usize) -> usize {
        let rows = count.div_ceil(self.tile.enough.max(1)).max(1);
        rows.next_multiple_of(self.tile.lines)
    }

    /// The parameters that `lines.h` and `rows.h` ask for.
    pub(in crate::ops) fn declare(&self, kernel: &mut Kernel) {
        self.tile.declare(kernel);
        kernel.define("HELD", self.held);
        kernel.define("VECTOR", self.vector);
    }

    /// The macro `name` for a place's dtype, and how many words its vectors are.
    pub(in crate::ops) fn define(&self, kernel: &mut Kernel, name: &str, place: &Place) {
        let dtype = place.ty.dtype;
        kernel.define_dtype(name, dtype);
        let words = self.vector * dtype.size().unwrap_or(1) / size_of::<u32>();
        kernel.define(&format!("{name}_WORDS"), words);
    }
}

/// The elements of 16 bytes, if segments of lines of `memory` are made of such; else 1. Lines begin
/// at the positions `starts`, and their elements are `along` from there.
pub(in crate::ops) fn vector(
    memory: Memory,
    starts: &Layout,
    along: &Layout,
    segment: usize,
) -> usize {
    let [line] = Layout::collapse([along]);
    match line.strides.len() {
        1 => vector_of_pieces(memory, starts, along, segment),
        _ => 1,
    }
}

/// The same where lines are made of several pieces without gaps.
pub(in crate::ops) fn vector_of_pieces(
    memory: Memory,
    starts: &Layout,
    along: &Layout,
    segment: usize,
) -> usize {
    let dtype = memory.dtype();
    let vector = match dtype.size().filter(|_| PARTS.contains(&dtype)) {
        Some(size) => WIDEST / size,
        None => return 1,
    };
    let [line] = Layout::collapse([along]);
    let (Some(&piece), Some((1, steps))) = (line.shape.last(), line.strides.split_last()) else {
        return 1;
    };
    let fits = along.elements() >= NEIGHBOURS * vector
        && [piece, segment, memory.offset()]
            .iter()
            .chain(steps)
            .chain(&starts.strides)
            .all(|n| n.is_multiple_of(vector));
    if fits { vector } else { 1 }
}

/// Number of neighbours that lanes load and store at a time, in kernels of [`line_kernel`] that
/// hold lines in registers. The arguments are those of the kernel; its text has `held.h`. It is 1
/// unless lanes have many neighbours.
pub(in crate::ops) fn held_vector(
    step: &Step,
    views: [&Layout; 2],
    dim: usize,
    limits: &Limits,
) -> usize {
    let [x, y] = views.map(|view| split(view, dim));
    let (starts, along) = &x;
    let len = along.elements();
    let held = Tile::whole_lines(limits, starts, along).held(len);
    let memory = [&step.inputs[0], step.output()].map(Memory::Place);
    let vectors = memory.iter().zip([&x, &y]);
    let mut vectors = vectors.map(|(&memory, (starts, along))| vector(memory, starts, along, len));
    let [Some(of_x), Some(of_y)] = [vectors.next(), vectors.next()] else {
        return 1;
    };
    let fits = of_x == of_y && held >= HELD[1] && held.is_multiple_of(of_x);
    if fits { of_x } else { 1 }
}

/// The dtype in which lanes add up lines of `len` numbers. A processor's lanes add up long lines in double precision,
/// for their roundings would lose digits.
pub(in crate::ops) fn exact(dtype: DType, len: usize, limits: &Limits) -> DType {
    match limits.is_processor && limits.has_f64 && len / PROCESSOR_GROUP > LONGEST_CHAIN {
        true => DType::F64,
        false => dtype,
    }
}

/// The kernel `name` of `text`. It goes through whole lines along `dim` of operand 0 of `step`, and
/// writes lines of the result. They are seen as `views` of one shape.
pub(in crate::ops) fn line_kernel(
    name: &'static str,
    text: &'static str,
    step: &Step,
    views: [&Layout; 2],
    dim: usize,
    limits: &Limits,
) -> Kernel {
    let [(x_starts, x_along), (y_starts, y_along)] = views.map(|view| split(view, dim));
    let (count, len) = (x_starts.elements(), x_along.elements());
    let tile = Tile::whole_lines(limits, &x_starts, &x_along);
    let mut kernel = Kernel::new(name, text, tile.group());
    let dtype = step.output().ty.dtype;
    kernel.define_dtype("X", dtype);
    kernel.define("HELD", tile.held(len));
    kernel.read("x", &step.inputs[0]);
    kernel.write("y", step.output());
    tile.declare(&mut kernel);
    walk(&mut kernel, "starts", &[("x", &x_starts), ("y", &y_starts)]);
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
        cuda_capability: 0,
    };

    /// The tile for sums of a contiguous matrix along `dim`, and how long segments are.
    fn along(rows: usize, columns: usize, dim: usize) -> (Tile, usize) {
        let matrix = Layout::contiguous(&[rows, columns].into());
        let (starts, along) = split(&matrix, dim);
        let tile = Tile::new(&GPU, &starts, &along);
        let segment = tile.segment(starts.elements(), along.elements());
        (tile, segment)
    }

    #[test]
    fn all_lanes_have_a_line() {
        for rows in [1, 3, 100, 5000] {
            for columns in [1, 7, 300, 70_000] {
                for dim in [0, 1] {
                    let (tile, segment) = along(rows, columns, dim);
                    let group = tile.lines * tile.team;
                    assert!([GROUP, LARGE_GROUP].contains(&group), "{rows} × {columns}");
                    assert!((1..=[rows, columns][dim]).contains(&segment));
                }
            }
        }
    }

    #[test]
    fn neighbouring_lanes_read_neighbours() {
        let (rows, _) = along(4096, 4096, 1);
        assert!(!rows.is_across && rows.team == GROUP);
        let (columns, _) = along(4096, 4096, 0);
        assert!(columns.is_across && columns.lines >= NEIGHBOURS);
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
