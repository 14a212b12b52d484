//! Composite operations that somebody else defines, and rules that find them.

use rustorch_ir::ops::{BinaryOp, Composite, Custom, UnaryOp};
use rustorch_ir::passes::{Finder, Match};
use rustorch_ir::{Graph, Op, OpError, OpKind, Results, ValueId};
use rustorch_runtime::{DeviceType, Explanation, Routing, Runtime};

use super::fake::{Fake, cpu};
use super::{GPU, explain, graph, storage, values};

const ON_GPU: Routing = Routing {
    device: GPU,
    ..Routing::AUTO
};

/// `tanh(a + b)`.
#[derive(PartialEq, Eq, Hash, Debug)]
struct TanhSum;

impl Composite for TanhSum {
    fn name(&self) -> &'static str {
        "tanh_sum"
    }

    fn decompose(&self, g: &mut Graph, inputs: &[ValueId]) -> Result<Results, OpError> {
        let sum = g.add(inputs[0], inputs[1])?;
        Ok([g.unary(UnaryOp::Tanh, sum)?].into_iter().collect())
    }

    fn replaces(&self) -> Vec<OpKind> {
        vec![OpKind::Binary, OpKind::Unary]
    }
}

/// A `tanh` of a sum.
fn tanh_sum(f: &Finder, at: usize) -> Vec<Match> {
    let find = || {
        let is_sum = |op: &Op| matches!(op, Op::Binary(op) if op.op == BinaryOp::Add);
        let is_tanh = |op: &Op| matches!(op, Op::Unary(op) if op.op == UnaryOp::Tanh);
        let reader = f.only_reader(f.result(at))?;
        (is_sum(f.op(at)) && is_tanh(f.op(reader))).then(|| Match {
            op: Custom::new(TanhSum).into(),
            inputs: f.operands(at).iter().copied().collect(),
            nodes: [at, reader].into_iter().collect(),
            results: [f.result(reader)].into_iter().collect(),
        })
    };
    find().into_iter().collect()
}

fn is_tanh_sum(op: &Custom) -> bool {
    op.downcast_ref::<TanhSum>().is_some()
}

/// `tanh(x + x)`.
fn parts() -> Graph {
    graph(3, |g, x| {
        let sum = g.add(x, x).unwrap();
        g.unary(UnaryOp::Tanh, sum).unwrap()
    })
}

fn called() -> Graph {
    graph(3, |g, x| g.push(Custom::new(TanhSum), &[x, x]).unwrap())
}

fn names(rows: &[Explanation]) -> Vec<(&str, &str, DeviceType)> {
    let name = |row| {
        let Explanation {
            op,
            replaces,
            device,
            ..
        }: &Explanation = row;
        (&**op, &**replaces, *device)
    };
    rows.iter().map(name).collect()
}

fn check(runtime: &Runtime, graph: &Graph) {
    let inputs = [storage(&[0.0, 1.0, -2.0])];
    let outputs = runtime.run(graph, &inputs, Routing::AUTO).unwrap();
    let expected = [0.0, 2f32.tanh(), (-4f32).tanh()];
    let close = |(a, b): (&f32, &f32)| (a - b).abs() < 1e-6;
    let got = values(runtime, &outputs[0]);
    assert!(got.iter().zip(&expected).all(close), "{got:?}");
}

#[test]
fn a_rule_puts_it_in_place_of_its_parts_where_a_device_has_a_kernel() {
    let gpu = Fake::gpu(GPU).with(is_tanh_sum);
    let runtime = Runtime::new([gpu.backend(), cpu()]);
    let routing = ON_GPU;
    let rows = explain(&runtime, &parts(), routing);
    assert_eq!(names(&rows), [("add", "", GPU), ("tanh", "", GPU)]);
    // Plans that were made before are made again.
    runtime.add_fusion(tanh_sum);
    let rows = explain(&runtime, &parts(), routing);
    assert_eq!(names(&rows), [("tanh_sum", "add, tanh", GPU)]);
    check(&runtime, &parts());
    let unable = Runtime::new([Fake::gpu(GPU).backend(), cpu()]);
    unable.add_fusion(tanh_sum);
    let rows = explain(&unable, &parts(), routing);
    assert_eq!(names(&rows), [("add", "", GPU), ("tanh", "", GPU)]);
}

#[test]
fn it_is_called_by_itself_and_runs_anywhere() {
    let runtime = Runtime::new([cpu()]);
    let rows = explain(&runtime, &called(), Routing::AUTO);
    let cpu_rows = [("add", "", DeviceType::Cpu), ("tanh", "", DeviceType::Cpu)];
    assert_eq!(names(&rows), cpu_rows);
    assert!(
        rows.iter().all(|row| row.reason.contains("tanh_sum")),
        "{rows:?}"
    );
    check(&runtime, &called());
    let able = Runtime::new([
        Fake::gpu(GPU).with(is_tanh_sum).backend(),
        super::fake::cpu(),
    ]);
    let rows = explain(&able, &called(), ON_GPU);
    assert_eq!(names(&rows), [("tanh_sum", "", GPU)]);
    check(&able, &called());
}
