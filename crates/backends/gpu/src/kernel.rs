//! A kernel with the arguments of one launch.

mod wgsl;

use std::borrow::Cow;
use std::fmt::Write;

use rustorch_ir::DType;
use rustorch_runtime::{Place, Slot};
use smallvec::SmallVec;

use crate::dialect::{Dialect, Head, Pointer};
use crate::driver::{Access, TileMap};

/// The buffer that a kernel's argument is in.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Buffer {
    /// A graph input.
    Input(usize),
    /// A graph output.
    Output(usize),
    /// A buffer of the arena, of intermediate values.
    Arena(usize),
    /// Memory for the time of one step.
    Scratch,
    /// The word in which a kernel reports the caller's mistakes.
    Status,
    /// Words that are zero whenever no launch is at work.
    Counters,
}

/// A kernel's argument that is memory.
struct Argument {
    name: String,
    /// The dtype's name, as in `storage_f32`.
    element: &'static str,
    buffer: Buffer,
    access: Access,
}

/// Memory for the time of one step, from a byte of [`Buffer::Scratch`] on.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Scratch {
    pub(crate) at: usize,
    pub(crate) bytes: usize,
}

/// Words of the program that are zero between launches, see [`Kernel::counters`].
#[derive(Clone, Copy, Debug)]
pub(crate) struct Counters {
    pub(crate) at: usize,
    pub(crate) words: usize,
}

/// Type of a field of the parameter structure.
#[derive(Clone, Copy)]
enum Field {
    /// A `uint`.
    Word,
    /// An array of so many.
    Words(usize),
    /// A `float`.
    Float,
}

/// A kernel to be launched.
///
/// Its text says `KERNEL_BEGIN … KERNEL_END` around the body. There, each buffer is a pointer
/// of its name to `storage_*` elements, and each parameter is a field of `p`.
pub(crate) struct Kernel {
    name: &'static str,
    text: Cow<'static, str>,
    group: u32,
    groups: [u32; 3],
    /// Macros that specialise it, with their values.
    definitions: Vec<(String, String)>,
    arguments: Vec<Argument>,
    tiles: Vec<TileMap>,
    /// Names and types of the parameter structure's fields.
    fields: Vec<(String, Field)>,
    /// Their words.
    params: Vec<u32>,
    /// Bytes of local memory that the text does not declare.
    dynamic_local: u32,
    /// Work-items of a group, and groups, that a compute unit's registers are to be enough for.
    residence: Option<[u32; 2]>,
    /// Groups of a cluster.
    cluster: u32,
}

/// A kernel's source, and the arguments of its launch.
pub(crate) struct Dispatch {
    pub(crate) name: &'static str,
    /// The source without the prelude.
    pub(crate) source: String,
    pub(crate) buffers: SmallVec<[Buffer; 8]>,
    /// Access of the kernel to each.
    pub(crate) accesses: SmallVec<[Access; 8]>,
    pub(crate) tiles: Vec<TileMap>,
    pub(crate) params: Vec<u32>,
    pub(crate) group: u32,
    pub(crate) groups: [u32; 3],
    pub(crate) dynamic_local: u32,
}

impl Dispatch {
    /// The kernel's name with its definitions and parameters.
    pub(crate) fn variant(&self) -> String {
        let (head, _) = self.source.split_once("KERNEL_BEGIN").unwrap_or_default();
        let lines = head.lines();
        let others = lines.filter(|line| !line.starts_with("#define BLOCK_"));
        let head: String = others.flat_map(|line| [line, "\n"]).collect();
        // Longer names first: f16 is part of bf16.
        let mut types = DType::SCALARS.map(name).to_vec();
        types.extend([DType::F32, DType::F64].map(accumulator));
        types.sort_by_key(|name| std::cmp::Reverse(name.len()));
        let head = types
            .iter()
            .fold(head, |head, name| head.replace(name, "type"));
        format!("{} {head}", self.name)
    }
}

/// The name that kernels give a dtype; blocks are bytes to them.
pub(crate) fn name(dtype: DType) -> &'static str {
    match dtype {
        DType::Block(_) => "u8",
        scalar => scalar.name(),
    }
}

/// The type that sums of a dtype are made in.
pub(crate) fn accumulator(dtype: DType) -> &'static str {
    match dtype {
        DType::F64 => "double",
        _ => "float",
    }
}

/// The words of a number of 64 bits, the low one first.
pub(crate) fn halves(bits: u64) -> [usize; 2] {
    [bits as u32 as usize, (bits >> 32) as usize]
}

/// Start of an argument in its buffer.
#[derive(Clone, Copy)]
struct Start {
    /// Granules, because a buffer may be larger than a 32-bit number of bytes.
    granules: usize,
    /// Then a number of elements; of bytes for blocks.
    elements: usize,
}

/// Bytes of the unit that values in the arena and scratch memory begin at multiples of.
pub(crate) const GRANULE: usize = 64;

/// Position of a place for a launch that is not a kernel: its buffer, and the byte at which it begins.
pub(crate) fn position(place: &Place) -> (Buffer, usize) {
    let Start { granules, elements } = start(place);
    let size = place.ty.dtype.size().unwrap_or(1);
    (buffer(place), granules * GRANULE + elements * size)
}

fn buffer(place: &Place) -> Buffer {
    match place.slot {
        Slot::Input(i) => Buffer::Input(i),
        Slot::Output(i) => Buffer::Output(i),
        Slot::Arena { buffer, .. } => Buffer::Arena(buffer),
    }
}

fn start(place: &Place) -> Start {
    let offset = place.layout.offset;
    Start {
        granules: match place.slot {
            Slot::Arena { at, .. } => at / GRANULE,
            Slot::Input(_) | Slot::Output(_) => 0,
        },
        elements: match place.ty.dtype {
            DType::Block(format) => format.row_bytes(offset).unwrap_or(0),
            _ => offset,
        },
    }
}

/// The bytes of its buffer that a place is in.
fn reach(place: &Place) -> Access {
    let Slot::Arena { at, .. } = place.slot else {
        // Other kernels may reach any byte of an input or output.
        return Access {
            start: 0,
            end: usize::MAX,
            is_written: false,
        };
    };
    let layout = &place.layout;
    let steps = layout.shape.iter().zip(&layout.strides);
    let last: usize = steps
        .map(|(size, stride)| size.saturating_sub(1) * stride)
        .sum();
    let bytes = |elements: usize| match place.ty.dtype {
        DType::Block(format) => format.row_bytes(elements).unwrap_or(usize::MAX),
        scalar => elements * scalar.size().unwrap_or(0),
    };
    Access {
        start: at + bytes(layout.offset),
        end: at + bytes(layout.offset + last + 1),
        is_written: false,
    }
}

impl Kernel {
    /// The kernel `name` of `text`, in groups of `group` work-items.
    pub(crate) fn new(name: &'static str, text: impl Into<Cow<'static, str>>, group: u32) -> Self {
        let mut kernel = Self {
            name,
            text: text.into(),
            group,
            groups: [1; 3],
            definitions: Vec::new(),
            arguments: Vec::new(),
            tiles: Vec::new(),
            fields: Vec::new(),
            params: Vec::new(),
            dynamic_local: 0,
            cluster: 1,
            residence: None,
        };
        kernel.define("GROUP", group);
        kernel
    }

    /// The number of groups.
    pub(crate) fn groups(mut self, x: usize, y: usize, z: usize) -> Self {
        // Tensors have fewer than 2³² elements, so grids have fewer groups.
        self.groups = [x, y, z].map(|n| n as u32);
        self
    }

    /// Sets the bytes of local memory in `DYNAMIC_LOCAL`, if the language has that.
    pub(crate) fn dynamic_local(&mut self, bytes: usize) {
        self.dynamic_local = bytes as u32;
    }

    /// Bounds the registers of a work-item, so that a compute unit holds `groups` groups of `group`
    /// work-items. It has effect if the language can say that.
    pub(crate) fn residence(&mut self, group: u32, groups: u32) {
        self.residence = Some([group, groups]);
    }

    /// Lets `groups` successive groups reach each other's local memory, if the language has that.
    /// The number of groups is a multiple of it.
    pub(crate) fn cluster(&mut self, groups: u32) {
        self.cluster = groups;
    }

    /// Defines a macro that specialises the kernel.
    pub(crate) fn define(&mut self, name: &str, value: impl std::fmt::Display) {
        self.definitions.push((name.to_owned(), value.to_string()));
    }

    /// A macro that is the name of a dtype.
    pub(crate) fn define_dtype(&mut self, macro_name: &str, dtype: DType) {
        self.define(macro_name, name(dtype));
    }

    /// Memory that is read.
    pub(crate) fn read(&mut self, name: &str, place: &Place) {
        self.place(name, place, false);
    }

    /// Memory that is written, and may be read.
    pub(crate) fn write(&mut self, name: &str, place: &Place) {
        self.place(name, place, true);
    }

    fn place(&mut self, name: &str, place: &Place, written: bool) {
        let element = self::name(place.ty.dtype);
        let access = Access {
            is_written: written,
            ..reach(place)
        };
        self.argument(name, element, buffer(place), start(place), access);
    }

    /// Scratch memory of elements of `dtype`, that is written if `written`.
    pub(crate) fn scratch(&mut self, name: &str, dtype: DType, scratch: Scratch, written: bool) {
        let start = Start {
            granules: scratch.at / GRANULE,
            elements: 0,
        };
        let access = Access {
            start: scratch.at,
            end: scratch.at + scratch.bytes,
            is_written: written,
        };
        self.argument(name, self::name(dtype), Buffer::Scratch, start, access);
    }

    /// Words that are zero when the launch begins, and have to be again when it ends.
    pub(crate) fn counters(&mut self, name: &str, counters: Counters) {
        let start = Start {
            granules: 0,
            elements: counters.at,
        };
        let access = Access {
            start: counters.at * size_of::<u32>(),
            end: (counters.at + counters.words) * size_of::<u32>(),
            is_written: true,
        };
        self.argument(name, "u32", Buffer::Counters, start, access);
    }

    /// Adds the tensor map `name_map`, if the language has that. It brings tiles of `rows` rows of the
    /// argument `name`, which is `place`, of four dimensions.
    pub(crate) fn tiles(&mut self, name: &str, place: &Place, rows: usize) {
        let named = |argument: &Argument| argument.name == name;
        let Some(buffer) = self.arguments.iter().position(named) else {
            return;
        };
        let shape = [0, 1, 2, 3].map(|i| place.ty.shape[i]);
        // A dimension of one may have any stride, of which maps ask for multiples of 16 bytes.
        let step = |i: usize| match shape[i] {
            1 => shape[3],
            _ => place.layout.strides[i],
        };
        self.tiles.push(TileMap {
            buffer,
            offset: position(place).1,
            dtype: place.ty.dtype,
            shape,
            strides: [step(0), step(1), step(2)],
            rows,
        });
    }

    /// The text, where it is generated with the arguments.
    pub(crate) fn set_text(&mut self, text: String) {
        self.text = text.into();
    }

    /// The status word as `name`, and the parameter `name_code` to `REPORT` there.
    pub(crate) fn status(&mut self, name: &str, code: u32) {
        let first = self.arguments.iter().find(|a| a.buffer == Buffer::Status);
        if let Some(first) = first.map(|first| first.name.clone()) {
            self.define(name, first);
        } else {
            let start = Start {
                granules: 0,
                elements: 0,
            };
            let access = Access {
                start: 0,
                end: size_of::<u32>(),
                is_written: true,
            };
            self.argument(name, "u32", Buffer::Status, start, access);
        }
        self.word(&format!("{name}_code"), code as usize);
    }

    fn argument(
        &mut self,
        name: &str,
        element: &'static str,
        buffer: Buffer,
        start: Start,
        access: Access,
    ) {
        self.arguments.push(Argument {
            name: name.to_owned(),
            element,
            buffer,
            access,
        });
        // Whatever the buffer, so that one kernel serves all.
        self.word(&format!("{name}_granule"), start.granules);
        self.word(&format!("{name}_at"), start.elements);
    }

    /// A parameter that is a `uint`: a size or position, below 2³².
    pub(crate) fn word(&mut self, name: &str, value: usize) {
        self.fields.push((name.to_owned(), Field::Word));
        self.params.push(value as u32);
    }

    /// A parameter that is an array of `uint`, of at least one element.
    pub(crate) fn words(&mut self, name: &str, values: &[usize]) {
        let field = Field::Words(values.len().max(1));
        self.fields.push((name.to_owned(), field));
        match values.is_empty() {
            true => self.params.push(0),
            false => self.params.extend(values.iter().map(|&v| v as u32)),
        }
    }

    /// A parameter that is a `float`.
    pub(crate) fn float(&mut self, name: &str, value: f32) {
        self.fields.push((name.to_owned(), Field::Float));
        self.params.push(value.to_bits());
    }

    /// A parameter that is a number in the precision of `dtype`'s sums, under the name of a
    /// macro.
    pub(crate) fn real(&mut self, name: &str, dtype: DType, value: f64) {
        let field = name.to_lowercase();
        if dtype == DType::F64 {
            self.words(&field, &halves(value.to_bits()));
            let bits = format!("(ulong)p.{field}[0] | (ulong)p.{field}[1] << 32");
            self.define(name, format!("F64_OF_BITS({bits})"));
        } else {
            self.float(&field, value as f32);
            self.define(name, format!("p.{field}"));
        }
    }

    /// The launch, in the language of a driver.
    pub(crate) fn finish(mut self, dialect: Dialect) -> Dispatch {
        let source = match dialect {
            Dialect::Wgsl => {
                self.count_groups_in_rows();
                wgsl::source(&self)
            }
            _ => self.portable_source(dialect),
        };
        Dispatch {
            name: self.name,
            source,
            buffers: self.arguments.iter().map(|a| a.buffer).collect(),
            accesses: self.arguments.iter().map(|a| a.access).collect(),
            tiles: self.tiles,
            params: self.params,
            group: self.group,
            groups: self.groups,
            dynamic_local: self.dynamic_local,
        }
    }

    /// Counts the groups in rows, with their number as the parameter `groups`: an axis has 65,535 at most.
    fn count_groups_in_rows(&mut self) {
        let groups = self
            .groups
            .iter()
            .fold(1, |n: u32, &axis| n.saturating_mul(axis));
        self.word("groups", groups as usize);
        let across = groups.min(Dialect::ROW);
        self.groups = [across, groups.div_ceil(Dialect::ROW), 1];
    }

    /// The source in the portable dialect of C.
    fn portable_source(&self, dialect: Dialect) -> String {
        let mut source = String::new();
        for (name, value) in &self.definitions {
            let _ = writeln!(source, "#define {name} {value}");
        }
        source.push_str("typedef struct {\n");
        for (name, field) in &self.fields {
            let _ = match field {
                Field::Word => writeln!(source, "    uint {name};"),
                Field::Words(count) => writeln!(source, "    uint {name}[{count}];"),
                Field::Float => writeln!(source, "    float {name};"),
            };
        }
        source.push_str("} Params;\n");
        let pointers = pointers(dialect, &self.arguments);
        let map = |map: &TileMap| format!("{}_map", self.arguments[map.buffer].name);
        let maps: Vec<String> = self.tiles.iter().map(map).collect();
        let _ = write!(source, "#define KERNEL_BEGIN ");
        let head = Head {
            name: self.name,
            pointers: &pointers,
            maps: &maps,
            has_params: !self.params.is_empty(),
            group: self.group,
            residence: self.residence.unwrap_or([self.group, 1]),
            cluster: self.cluster,
        };
        dialect.begin(&head, &mut source);
        for Pointer { ty, name, start } in &pointers {
            let _ = write!(source, " {ty} {name} = {start};");
        }
        if dialect.starts_early() && !source.contains("#define STARTS_EARLY ") {
            source.push_str(" WAIT_FOR_INPUTS;");
        }
        source.push_str("\n#define KERNEL_END }\n");
        source.push_str(&self.text);
        source
    }
}

fn pointers(dialect: Dialect, arguments: &[Argument]) -> Vec<Pointer<'_>> {
    let space = dialect.global();
    let pointer = |argument: &'_ Argument| {
        let Argument { name, element, .. } = argument;
        let constant = match argument.access.is_written {
            true => "",
            false => "const ",
        };
        let ty = format!("{space} {constant}storage_{element}*");
        let bytes = format!("({space} {constant}uchar*){name}_");
        let base = format!("(({ty})({bytes} + (ulong)p.{name}_granule * {GRANULE}))");
        let start = format!("{base} + p.{name}_at");
        (ty, start)
    };
    let named = |argument| {
        let (ty, start) = pointer(argument);
        let name = argument.name.as_str();
        Pointer { ty, name, start }
    };
    arguments.iter().map(named).collect()
}
