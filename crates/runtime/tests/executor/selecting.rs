//! Answers about devices agree with the planner.

use rustorch_ir::ops::{
    Activation, ActivationKind, Binary, BinaryOp, Conv2d, Matmul, Reduce, ReduceOp, Softmax,
};
use rustorch_ir::{DType, Graph, Op, OpKind, Signature, TensorType};
use rustorch_runtime::{
    Backend, DeviceError, DeviceInfo, DeviceMemory, DeviceType, GpuExecutionStrategy, OpType,
    Program, Routing, Runtime, TensorInfo,
};

use crate::GPU;
use crate::fake::{Fake, cpu};

/// A device that, as many, has no double precision.
struct WithoutDoubles(Fake);

impl Backend for WithoutDoubles {
    fn info(&self) -> &DeviceInfo {
        self.0.info()
    }

    fn supports(&self, signature: &Signature) -> bool {
        let mut types = signature.types();
        types.all(|ty| !matches!(ty.dtype, DType::F64 | DType::Complex128))
            && self.0.supports(signature)
    }

    fn memory(&self) -> &dyn DeviceMemory {
        self.0.memory()
    }

    fn compile(&self, graph: &Graph) -> Result<Box<dyn Program>, DeviceError> {
        self.0.compile(graph)
    }
}

const METAL: DeviceType = DeviceType::Metal(0);

fn machine() -> Runtime {
    let metal = WithoutDoubles(Fake::gpu(METAL).without(&[OpKind::Conv2d]));
    Runtime::new([
        std::sync::Arc::new(metal) as _,
        Fake::gpu(GPU).without(&[OpKind::Softmax]).backend(),
        cpu(),
    ])
}

/// The device on which the planner places an operation that is a graph of its own. It is `said` if the operation only
/// views its operand, as some do without elements. It is `None` if the operation is not defined, or no device can run
/// it.
fn planned(
    runtime: &Runtime,
    op: &Op,
    inputs: &[TensorType],
    routing: Routing,
    said: Option<DeviceType>,
) -> Option<DeviceType> {
    let mut graph = Graph::new();
    let values: Vec<_> = inputs
        .iter()
        .map(|ty| graph.input(ty.clone()))
        .collect::<Result<_, _>>()
        .ok()?;
    let y = graph.push(op.clone(), &values).ok()?;
    graph.output(y);
    let rows = runtime.prepare(graph, routing).explain().ok()?;
    // Parts of what is decomposed are on one device.
    rows.first().map_or(said, |row| Some(row.device))
}

fn routings() -> impl Iterator<Item = Routing> {
    let on = |device| Routing {
        device,
        ..Routing::AUTO
    };
    let strict = Routing {
        strict: true,
        ..on(METAL)
    };
    let cpu_only = Routing {
        strategy: GpuExecutionStrategy::CpuOnly,
        ..Routing::AUTO
    };
    [
        Routing::AUTO,
        Routing::F32_HYBRID,
        on(GPU),
        on(METAL),
        strict,
        cpu_only,
    ]
    .into_iter()
}

#[test]
fn every_operation_is_placed_where_it_was_said() {
    let runtime = machine();
    let mut asked = 0;
    for &kind in OpKind::ALL {
        for case in kind.cases() {
            if case.op.def().op_type().is_none() {
                continue;
            }
            let inputs: Vec<TensorType> = case.inputs.iter().map(|x| x.ty.clone()).collect();
            for routing in routings() {
                let said = runtime.candidates_of(&case.op, &inputs, routing);
                let said = said.first().copied();
                let placed = planned(&runtime, &case.op, &inputs, routing, said);
                assert_eq!(said, placed, "{} {inputs:?}", case.op.name());
                asked += 1;
            }
        }
    }
    assert!(asked > 1000, "{asked}");
}

/// The operation of a family that is typical for tensors of two and more dimensions, and its
/// operands.
fn typical(op_type: OpType, ty: &TensorType) -> (Op, Vec<TensorType>) {
    let shape = &ty.shape;
    let [.., rows, columns] = shape[..] else {
        panic!("{ty}");
    };
    let last = shape.len() - 1;
    match op_type {
        OpType::LinearAlgebra => {
            let other = TensorType::new([columns, rows.min(columns)], ty.dtype);
            (Matmul.into(), vec![ty.clone(), other])
        }
        OpType::Convolution => {
            let x = TensorType::new([1, 1, rows, columns], ty.dtype);
            let weight = TensorType::new([1, 1, 3, 3], ty.dtype);
            let padding = [1; 2];
            let op = Conv2d {
                padding,
                ..Conv2d::default()
            };
            (op.into(), vec![x, weight])
        }
        OpType::Activation if ty.dtype.is_float() => {
            let kind = ActivationKind::Relu;
            (Activation { kind }.into(), vec![ty.clone()])
        }
        OpType::Activation => (Binary { op: BinaryOp::Add }.into(), vec![ty.clone(); 2]),
        OpType::Reduction => {
            let (op, keepdim) = (ReduceOp::Sum, false);
            let dims = [last].into_iter().collect();
            (Reduce { op, dims, keepdim }.into(), vec![ty.clone()])
        }
        OpType::Normalization => (
            Softmax {
                dim: last,
                log: false,
            }
            .into(),
            vec![ty.clone()],
        ),
        _ => (Binary { op: BinaryOp::Mul }.into(), vec![ty.clone(); 2]),
    }
}

#[test]
fn a_family_is_placed_where_it_was_said_for_every_dtype_and_size() {
    let runtime = machine();
    let families = [
        OpType::LinearAlgebra,
        OpType::Convolution,
        OpType::Activation,
        OpType::Reduction,
        OpType::Normalization,
        OpType::ComplexMath,
    ];
    for dtype in DType::SCALARS {
        for side in [3, 100, 101, 400, 3000] {
            let info = TensorInfo::new(TensorType::new([side, side], dtype));
            for (op_type, routing) in families
                .iter()
                .flat_map(|&f| routings().map(move |r| (f, r)))
            {
                let said = runtime.candidates(op_type, &info, routing);
                let (op, inputs) = typical(op_type, &info.ty);
                let placed = planned(&runtime, &op, &inputs, routing, None)
                    .filter(|_| op_type != OpType::ComplexMath || dtype.is_complex())
                    .filter(|_| op_type == OpType::ComplexMath || !dtype.is_complex());
                assert_eq!(said.first().copied(), placed, "{op_type:?} of {}", info.ty);
            }
        }
    }
}

#[test]
fn a_large_product_of_doubles_is_not_for_a_device_without_them() {
    let runtime = machine();
    let large = |dtype| TensorInfo::new(TensorType::new([4000, 4000], dtype));
    let of = |dtype| runtime.candidates(OpType::LinearAlgebra, &large(dtype), Routing::AUTO);
    assert_eq!(of(DType::F32), [METAL, GPU, DeviceType::Cpu]);
    assert_eq!(of(DType::F64), [GPU, DeviceType::Cpu]);
    // Softmax has no kernel there, and is made of others.
    let softmax = runtime.candidates(OpType::Normalization, &large(DType::F64), Routing::AUTO);
    assert_eq!(softmax, [GPU, DeviceType::Cpu]);
    let conv = runtime.candidates(OpType::Convolution, &large(DType::F32), Routing::AUTO);
    assert_eq!(conv, [GPU, DeviceType::Cpu]);
}

#[test]
fn shapes_that_no_operation_has_are_nobodys() {
    let runtime = machine();
    let huge = TensorInfo::new(TensorType::new(
        [usize::MAX, usize::MAX, 2, 2, 2],
        DType::F32,
    ));
    for op_type in [
        OpType::Convolution,
        OpType::CustomKernel,
        OpType::DistributedOps,
    ] {
        assert!(runtime.candidates(op_type, &huge, Routing::AUTO).is_empty());
    }
    let none = runtime.candidates_of(&Matmul.into(), &[], Routing::AUTO);
    assert!(none.is_empty());
}
