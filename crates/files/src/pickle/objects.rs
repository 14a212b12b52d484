//! The values of pickles.

use rustorch_ir::DType;

/// An object of a [`Pickled`].
pub(crate) type Id = usize;

/// The objects of a pickle, and which of them is its value. They name each other, so that an object may be there
/// often, and in itself.
pub(crate) struct Pickled<'a> {
    pub(crate) objects: Vec<Object<'a>>,
    pub(crate) value: Id,
}

/// An object, whose texts are where the pickle has them.
#[derive(Clone, Debug)]
pub(crate) enum Object<'a> {
    None,
    Bool(bool),
    Int(i128),
    Float(f64),
    Text(&'a str),
    List(Vec<Id>),
    Tuple(Vec<Id>),
    Dict(Vec<(Id, Id)>),
    Global(Global),
    /// A device by its kind and number.
    Device(&'a str, Option<usize>),
    Storage(Box<StorageObject<'a>>),
    Tensor(Box<TensorObject>),
}

/// Memory that tensors are in, by its key in the file.
#[derive(Clone, Debug)]
pub(crate) struct StorageObject<'a> {
    pub(crate) key: &'a str,
    /// The type of its elements, if it has one.
    pub(crate) dtype: Option<DType>,
    /// Its elements; bytes, if it has no type.
    pub(crate) count: usize,
}

/// A tensor: where its elements are in a storage, counted in elements.
#[derive(Clone, Debug)]
pub(crate) struct TensorObject {
    pub(crate) storage: Id,
    pub(crate) dtype: DType,
    pub(crate) offset: usize,
    pub(crate) shape: Vec<usize>,
    pub(crate) strides: Vec<usize>,
}

/// The names of Python that are known.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Global {
    /// `collections.OrderedDict`.
    OrderedDict,
    /// `collections.Counter`.
    Counter,
    /// `set`.
    Set,
    /// `torch.device`.
    Device,
    /// `torch.Size`.
    Size,
    /// `torch._utils._rebuild_tensor` (1), `…_v2` (2) or `…_v3` (3).
    RebuildTensor(u8),
    /// `torch._utils._rebuild_parameter`, or `…_with_state`.
    RebuildParameter,
    /// The type of a storage, such as `torch.FloatStorage`; without a dtype `torch.storage.UntypedStorage`.
    Storage(Option<DType>),
    /// A dtype, such as `torch.uint16`.
    DType(DType),
}

/// PyTorch's names of dtypes, with those of their storages, where there are any.
pub(crate) const DTYPES: [(&str, Option<&str>, DType); 17] = [
    ("float64", Some("DoubleStorage"), DType::F64),
    ("float32", Some("FloatStorage"), DType::F32),
    ("float16", Some("HalfStorage"), DType::F16),
    ("bfloat16", Some("BFloat16Storage"), DType::BF16),
    ("int64", Some("LongStorage"), DType::I64),
    ("int32", Some("IntStorage"), DType::I32),
    ("int16", Some("ShortStorage"), DType::I16),
    ("int8", Some("CharStorage"), DType::I8),
    ("uint8", Some("ByteStorage"), DType::U8),
    ("bool", Some("BoolStorage"), DType::Bool),
    ("complex64", Some("ComplexFloatStorage"), DType::Complex64),
    (
        "complex128",
        Some("ComplexDoubleStorage"),
        DType::Complex128,
    ),
    ("uint16", None, DType::U16),
    ("uint32", None, DType::U32),
    ("uint64", None, DType::U64),
    ("float8_e4m3fn", None, DType::F8E4M3),
    ("float8_e5m2", None, DType::F8E5M2),
];

impl Global {
    /// The known attribute of a module with a name.
    pub(crate) fn find(module: &str, name: &str) -> Option<Self> {
        let of = |known: fn(&(&str, Option<&str>, DType), &str) -> bool| {
            let found = DTYPES.iter().find(|entry| known(entry, name));
            found.map(|&(_, _, dtype)| dtype)
        };
        match (module, name) {
            ("collections", "OrderedDict") => Some(Self::OrderedDict),
            ("collections", "Counter") => Some(Self::Counter),
            ("builtins" | "__builtin__", "set") => Some(Self::Set),
            ("torch", "device") => Some(Self::Device),
            ("torch", "Size") => Some(Self::Size),
            ("torch._utils", "_rebuild_tensor") => Some(Self::RebuildTensor(1)),
            ("torch._utils", "_rebuild_tensor_v2") => Some(Self::RebuildTensor(2)),
            ("torch._utils", "_rebuild_tensor_v3") => Some(Self::RebuildTensor(3)),
            ("torch._utils", "_rebuild_parameter" | "_rebuild_parameter_with_state") => {
                Some(Self::RebuildParameter)
            }
            ("torch.storage" | "torch", "UntypedStorage") => Some(Self::Storage(None)),
            ("torch", _) => {
                let storage = of(|entry, name| entry.1 == Some(name));
                let dtype = of(|entry, name| entry.0 == name);
                (storage.map(|d| Self::Storage(Some(d)))).or_else(|| dtype.map(Self::DType))
            }
            _ => None,
        }
    }
}
