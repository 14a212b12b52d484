//! The operations of ML Programs that are in use here: their first version, their parameters, and
//! their types. They follow the definitions of coremltools, `converters/mil/mil/ops/defs`.

use super::infer::{self, Operand, Operands, Type};
use crate::opset::Opset;
use crate::proto::mil::DataType::{
    self, Bool, Float16, Float32, Int4, Int8, Int32, String, Uint1, Uint2, Uint3, Uint4, Uint6,
    Uint8,
};

/// Operands and results of an operation.
pub(super) struct Rule {
    kind: &'static str,
    params: &'static [Param],
    pub(super) infer: fn(&Operands) -> Result<Type, std::string::String>,
}

/// A parameter.
struct Param {
    name: &'static str,
    /// The types it takes.
    types: &'static [DataType],
    /// Whether it has the type that others of this kind have.
    shares: bool,
    needs: Needs,
}

#[derive(Clone, Copy, PartialEq)]
enum Needs {
    /// A value.
    Value,
    /// A value, or several.
    List,
    /// A constant.
    Constant,
    /// A constant, or nothing.
    Optional,
    /// A state.
    State,
}

const FLOATS: &[DataType] = &[Float16, Float32];
const CODES: &[DataType] = &[Int4, Uint4, Int8, Uint8, Float16, Float32];
const INDICES: &[DataType] = &[Uint1, Uint2, Uint3, Uint4, Uint6, Uint8];
const NUMBERS: &[DataType] = &[Float16, Float32, Int32];
const ANY: &[DataType] = &[Float16, Float32, Int32, Bool];

const fn param(name: &'static str, types: &'static [DataType], needs: Needs) -> Param {
    Param {
        name,
        types,
        shares: false,
        needs,
    }
}

/// An operand of the type that all such have.
const fn of_type(name: &'static str, types: &'static [DataType], needs: Needs) -> Param {
    Param {
        name,
        types,
        shares: true,
        needs,
    }
}

const fn value(name: &'static str, types: &'static [DataType]) -> Param {
    of_type(name, types, Needs::Value)
}

const fn ints(name: &'static str, needs: Needs) -> Param {
    param(name, &[Int32], needs)
}

const fn flag(name: &'static str) -> Param {
    param(name, &[Bool], Needs::Optional)
}

const fn text(name: &'static str, needs: Needs) -> Param {
    param(name, &[String], needs)
}

const fn unary(kind: &'static str, params: &'static [Param]) -> Rule {
    Rule {
        kind,
        params,
        infer: infer::same,
    }
}

const fn rule(
    kind: &'static str,
    params: &'static [Param],
    infer: fn(&Operands) -> Result<Type, std::string::String>,
) -> Rule {
    Rule {
        kind,
        params,
        infer,
    }
}

const STATE: Param = param("input", &[Float16], Needs::State);
const FLOAT_X: &[Param] = &[value("x", FLOATS)];
const NUMBER_X: &[Param] = &[value("x", NUMBERS)];
const TWO_NUMBERS: &[Param] = &[value("x", NUMBERS), value("y", NUMBERS)];
const TWO_BOOLS: &[Param] = &[value("x", &[Bool]), value("y", &[Bool])];
const REDUCTION: &[Param] = &[
    value("x", NUMBERS),
    ints("axes", Needs::Optional),
    flag("keep_dims"),
];
const POOL: &[Param] = &[
    value("x", FLOATS),
    ints("kernel_sizes", Needs::Constant),
    ints("strides", Needs::Optional),
    text("pad_type", Needs::Constant),
    ints("pad", Needs::Optional),
    flag("ceil_mode"),
];
const AVERAGE_POOL: &[Param] = &[
    value("x", FLOATS),
    ints("kernel_sizes", Needs::Constant),
    ints("strides", Needs::Optional),
    text("pad_type", Needs::Constant),
    ints("pad", Needs::Optional),
    flag("ceil_mode"),
    flag("exclude_padding_from_average"),
];
const CONV: &[Param] = &[
    value("x", FLOATS),
    value("weight", FLOATS),
    of_type("bias", FLOATS, Needs::Optional),
    ints("strides", Needs::Optional),
    text("pad_type", Needs::Optional),
    ints("pad", Needs::Optional),
    ints("dilations", Needs::Optional),
    ints("groups", Needs::Optional),
];
const CONV_TRANSPOSE: &[Param] = &[
    value("x", FLOATS),
    of_type("weight", FLOATS, Needs::Constant),
    of_type("bias", FLOATS, Needs::Optional),
    ints("pad", Needs::Optional),
    text("pad_type", Needs::Optional),
    ints("strides", Needs::Optional),
    ints("dilations", Needs::Optional),
    ints("groups", Needs::Optional),
];

/// Operations that CoreML5 has and later sets kept. Parameters that are never written here are not
/// known.
const RULES: &[Rule] = &[
    unary("abs", NUMBER_X),
    unary("exp", FLOAT_X),
    unary("exp2", NUMBER_X),
    unary("sqrt", FLOAT_X),
    unary("sin", FLOAT_X),
    unary("cos", FLOAT_X),
    unary("tan", FLOAT_X),
    unary("sinh", FLOAT_X),
    unary("cosh", FLOAT_X),
    unary("tanh", FLOAT_X),
    unary("asin", FLOAT_X),
    unary("acos", FLOAT_X),
    unary("atan", FLOAT_X),
    unary("atanh", FLOAT_X),
    unary("erf", FLOAT_X),
    unary("floor", FLOAT_X),
    unary("ceil", FLOAT_X),
    unary("relu", FLOAT_X),
    unary("sigmoid", FLOAT_X),
    unary("silu", FLOAT_X),
    unary("logical_not", &[value("x", &[Bool])]),
    unary("identity", &[value("x", ANY)]),
    unary(
        "log",
        &[
            value("x", FLOATS),
            of_type("epsilon", FLOATS, Needs::Optional),
        ],
    ),
    unary("gelu", &[value("x", FLOATS), text("mode", Needs::Optional)]),
    rule("add", TWO_NUMBERS, infer::broadcast),
    rule("sub", TWO_NUMBERS, infer::broadcast),
    rule("mul", TWO_NUMBERS, infer::broadcast),
    rule("real_div", TWO_NUMBERS, infer::broadcast),
    rule("pow", TWO_NUMBERS, infer::broadcast),
    rule("maximum", TWO_NUMBERS, infer::broadcast),
    rule("minimum", TWO_NUMBERS, infer::broadcast),
    rule("logical_and", TWO_BOOLS, infer::broadcast),
    rule("logical_or", TWO_BOOLS, infer::broadcast),
    rule("logical_xor", TWO_BOOLS, infer::broadcast),
    rule("equal", TWO_NUMBERS, infer::comparison),
    rule("not_equal", TWO_NUMBERS, infer::comparison),
    rule("less", TWO_NUMBERS, infer::comparison),
    rule("less_equal", TWO_NUMBERS, infer::comparison),
    rule("greater", TWO_NUMBERS, infer::comparison),
    rule("greater_equal", TWO_NUMBERS, infer::comparison),
    rule(
        "select",
        &[
            param("cond", &[Bool], Needs::Value),
            value("a", ANY),
            value("b", ANY),
        ],
        infer::select,
    ),
    rule(
        "cast",
        &[value("x", ANY), text("dtype", Needs::Constant)],
        infer::cast,
    ),
    rule(
        "matmul",
        &[
            value("x", NUMBERS),
            value("y", NUMBERS),
            flag("transpose_x"),
            flag("transpose_y"),
        ],
        infer::matmul,
    ),
    rule(
        "linear",
        &[
            value("x", FLOATS),
            of_type("weight", FLOATS, Needs::Constant),
            of_type("bias", FLOATS, Needs::Optional),
        ],
        infer::linear,
    ),
    rule("conv", CONV, infer::conv),
    rule("conv_transpose", CONV_TRANSPOSE, infer::conv_transpose),
    rule("max_pool", POOL, infer::pool),
    rule("avg_pool", AVERAGE_POOL, infer::pool),
    rule("reduce_sum", REDUCTION, infer::reduce),
    rule("reduce_mean", REDUCTION, infer::reduce),
    rule("reduce_prod", REDUCTION, infer::reduce),
    rule("reduce_max", REDUCTION, infer::reduce),
    rule("reduce_min", REDUCTION, infer::reduce),
    rule(
        "softmax",
        &[value("x", FLOATS), ints("axis", Needs::Optional)],
        infer::softmax,
    ),
    rule(
        "layer_norm",
        &[
            value("x", FLOATS),
            ints("axes", Needs::Optional),
            of_type("gamma", FLOATS, Needs::Optional),
            of_type("beta", FLOATS, Needs::Optional),
            of_type("epsilon", FLOATS, Needs::Optional),
        ],
        infer::layer_norm,
    ),
    rule(
        "batch_norm",
        &[
            value("x", FLOATS),
            of_type("mean", FLOATS, Needs::Constant),
            of_type("variance", FLOATS, Needs::Constant),
            of_type("gamma", FLOATS, Needs::Optional),
            of_type("beta", FLOATS, Needs::Optional),
            of_type("epsilon", FLOATS, Needs::Optional),
        ],
        infer::batch_norm,
    ),
    rule(
        "reshape",
        &[value("x", ANY), ints("shape", Needs::Constant)],
        infer::reshape,
    ),
    rule(
        "transpose",
        &[value("x", ANY), ints("perm", Needs::Constant)],
        infer::transpose,
    ),
    rule(
        "slice_by_index",
        &[
            value("x", ANY),
            ints("begin", Needs::Constant),
            ints("end", Needs::Constant),
            ints("stride", Needs::Optional),
        ],
        infer::slice,
    ),
    rule(
        "tile",
        &[value("x", ANY), ints("reps", Needs::Constant)],
        infer::tile,
    ),
    rule(
        "pad",
        &[
            value("x", FLOATS),
            ints("pad", Needs::Constant),
            text("mode", Needs::Optional),
            of_type("constant_val", FLOATS, Needs::Optional),
        ],
        infer::pad,
    ),
    rule(
        "concat",
        &[
            of_type("values", ANY, Needs::List),
            ints("axis", Needs::Constant),
            flag("interleave"),
        ],
        infer::concat,
    ),
    rule(
        "gather",
        &[
            value("x", NUMBERS),
            ints("indices", Needs::Value),
            ints("axis", Needs::Optional),
        ],
        infer::gather,
    ),
    rule(
        "gather_along_axis",
        &[
            value("x", NUMBERS),
            ints("indices", Needs::Value),
            ints("axis", Needs::Optional),
        ],
        infer::gather_along_axis,
    ),
    rule(
        "fill",
        &[
            ints("shape", Needs::Constant),
            of_type("value", ANY, Needs::Constant),
        ],
        infer::fill,
    ),
];

/// Operations that CoreML6 brought, and CoreML8 gave another form.
const RULES_OF_COREML6: &[Rule] = &[rule(
    "constexpr_affine_dequantize",
    &[
        param("quantized_data", &[Int8, Uint8], Needs::Constant),
        param("zero_point", &[Int8, Uint8, Float32], Needs::Constant),
        param("scale", FLOATS, Needs::Constant),
        ints("axis", Needs::Constant),
    ],
    infer::dequantize,
)];

/// Returns whether it has its parameters as attributes, as operations that make constants had before CoreML8.
pub(super) fn has_attributes(kind: &str) -> bool {
    RULES_OF_COREML6.iter().any(|rule| rule.kind == kind)
}

/// Operations that CoreML8 brought.
const RULES_OF_COREML8: &[Rule] = &[
    rule(
        "constexpr_blockwise_shift_scale",
        &[
            param("data", CODES, Needs::Constant),
            of_type("scale", FLOATS, Needs::Constant),
            of_type("offset", FLOATS, Needs::Optional),
        ],
        infer::shift_scale,
    ),
    rule(
        "constexpr_lut_to_dense",
        &[
            param("indices", INDICES, Needs::Constant),
            param("lut", &[Int8, Uint8, Float16, Float32], Needs::Constant),
        ],
        infer::lut,
    ),
    rule("read_state", &[STATE], infer::read_state),
    rule(
        "write_state",
        &[STATE, param("data", &[Float16], Needs::Value)],
        infer::write_state,
    ),
    rule(
        "slice_update",
        &[
            value("x", ANY),
            value("update", ANY),
            ints("begin", Needs::Value),
            ints("end", Needs::Value),
        ],
        infer::slice_update,
    ),
];

/// Does it give nothing?
pub(super) fn gives_nothing(kind: &str) -> bool {
    kind == "write_state"
}

/// The rule of an operation, if the set of operations has it.
pub(super) fn find(kind: &str, opset: Opset) -> Result<&'static Rule, std::string::String> {
    let newer = [
        (Opset::CoreML6, RULES_OF_COREML6),
        (Opset::CoreML8, RULES_OF_COREML8),
    ];
    let newer = newer.into_iter().filter(|(since, _)| opset >= *since);
    let newer = newer.flat_map(|(_, rules)| rules);
    let rule = RULES.iter().chain(newer).find(|rule| rule.kind == kind);
    rule.ok_or_else(|| format!("no operation {kind:?} of {} is known", opset.name()))
}

impl Rule {
    /// Do the bound operands fit the parameters?
    pub(super) fn bind(&self, operands: &Operands) -> Result<(), std::string::String> {
        for name in operands.0.keys() {
            if !self.params.iter().any(|param| param.name == name) {
                return Err(format!("no parameter {name:?}"));
            }
        }
        let mut shared = None;
        for param in self.params {
            let bound = operands.0.get(param.name);
            for operand in param.bound(bound.map_or(&[][..], |bound| bound))? {
                let ty = operand.ty.data_type;
                if param.shares && *shared.get_or_insert(ty) != ty {
                    return Err(format!("{} of {ty:?}, unlike others", param.name));
                }
            }
        }
        Ok(())
    }
}

impl Param {
    fn bound<'a>(&self, operands: &'a [Operand]) -> Result<&'a [Operand], std::string::String> {
        let name = self.name;
        let counts = match self.needs {
            Needs::Value | Needs::Constant | Needs::State => operands.len() == 1,
            Needs::Optional => operands.len() <= 1,
            Needs::List => !operands.is_empty(),
        };
        if !counts {
            return Err(format!("{} values for {name}", operands.len()));
        }
        let is_constant = matches!(self.needs, Needs::Constant | Needs::Optional);
        for operand in operands {
            if is_constant && operand.constant.is_none() {
                return Err(format!("{name} has to be a constant"));
            }
            if operand.is_state != (self.needs == Needs::State) {
                let what = if operand.is_state {
                    "a state"
                } else {
                    "not a state"
                };
                return Err(format!("{name} is {what}"));
            }
            let ty = &operand.ty;
            if !self.types.contains(&ty.data_type) {
                return Err(format!("{name} of {ty}, not of {:?}", self.types));
            }
            if ty.shape.len() > 5 {
                return Err(format!("{name} of {ty}: more than 5 dimensions"));
            }
        }
        Ok(operands)
    }
}
