//! Mistakes of callers that only the data show.

use rustorch_ir::case::{Case, CaseOperand, Fill};
use rustorch_ir::ops::{
    Binary, BinaryOp, CrossEntropy, Embedding, ExpertLinear, Gather, IndexSelect, Resample,
    Scatter, ScatterMode, UpdateSlice,
};
use rustorch_ir::{BlockFormat, DType, Op, OpKind};

/// Cases of an operation that have to be refused as the caller's mistake.
pub(crate) fn of(kind: OpKind) -> Vec<Case> {
    let x = || CaseOperand::new([2, 3], DType::F32);
    let constant = |x: CaseOperand, value| x.fill(Fill::Ints(value, value + 1));
    let outside = |size: i64| [size, -1];
    let mut cases = Vec::new();
    match kind {
        OpKind::Binary => {
            for dtype in DType::INTS {
                for op in [BinaryOp::FloorDivide, BinaryOp::Remainder] {
                    let numbers = CaseOperand::new([3], dtype);
                    let zeros = constant(numbers.clone(), 0);
                    cases.push(Case::new(Binary { op }, [numbers, zeros]));
                }
            }
        }
        OpKind::IndexSelect => {
            for (at, dtype) in outside(3).into_iter().zip([DType::I64, DType::I32]) {
                let index = constant(CaseOperand::new([2], dtype), at);
                cases.push(Case::new(IndexSelect { dim: 1 }, [x(), index]));
            }
        }
        OpKind::Gather => {
            for (at, dtype) in outside(3).into_iter().zip([DType::I64, DType::I32]) {
                let index = constant(CaseOperand::new([2, 1], dtype), at);
                cases.push(Case::new(Gather { dim: 1 }, [x(), index]));
            }
        }
        OpKind::CrossEntropy => {
            for at in outside(3) {
                let class = constant(CaseOperand::new([2], DType::I64), at);
                let (dim, ignore_index) = (1, -100);
                let op = CrossEntropy { dim, ignore_index };
                cases.push(Case::new(op, [x(), class]));
            }
        }
        OpKind::Resample => {
            for (at, dtype) in outside(3).into_iter().zip([DType::I64, DType::I32]) {
                let places = constant(CaseOperand::new([1, 2], dtype), at);
                let weights = CaseOperand::new([1, 2], DType::F32);
                cases.push(Case::new(Resample { dim: 1 }, [x(), places, weights]));
            }
        }
        OpKind::Scatter => {
            for (at, mode) in outside(3)
                .into_iter()
                .zip([ScatterMode::Set, ScatterMode::Add])
            {
                let index = constant(CaseOperand::new([2, 1], DType::I64), at);
                let source = CaseOperand::new([2, 1], DType::F32);
                cases.push(Case::new(Scatter { dim: 1, mode }, [x(), index, source]));
            }
        }
        OpKind::UpdateSlice => {
            for start in outside(2) {
                let start = constant(CaseOperand::new([1], DType::I32), start);
                let source = CaseOperand::new([2, 2], DType::F32);
                cases.push(Case::new(UpdateSlice { dim: 1 }, [x(), source, start]));
            }
        }
        OpKind::ExpertLinear => {
            for (weights, at) in [DType::F32, DType::Block(BlockFormat::Q8_0)]
                .into_iter()
                .zip(outside(2))
            {
                let x = CaseOperand::new([3, 1, 32], DType::F32);
                let w = CaseOperand::new([2, 5, 32], weights);
                let ids = constant(CaseOperand::new([3, 2], DType::I32), at);
                cases.push(Case::new(ExpertLinear, [x, w, ids]));
            }
        }
        OpKind::Embedding => {
            for id in outside(2) {
                let ids = constant(CaseOperand::new([2], DType::I32), id);
                cases.push(Case::new(Embedding { dtype: DType::F32 }, [x(), ids]));
            }
        }
        _ => {}
    }
    cases
}

/// Does a message name the index that a case has to be refused for, if it is for an index?
pub(crate) fn is_told(case: &Case, message: &str) -> bool {
    let index = match &case.op {
        Op::IndexSelect(_)
        | Op::Gather(_)
        | Op::Scatter(_)
        | Op::Embedding(_)
        | Op::Resample(_) => &case.inputs[1],
        Op::ExpertLinear(_) => &case.inputs[2],
        _ => return true,
    };
    let mut numbers = message.split(|c: char| c != '-' && !c.is_ascii_digit());
    match index.fill {
        Fill::Ints(value, _) => numbers.any(|number| number == value.to_string()),
        _ => false,
    }
}
