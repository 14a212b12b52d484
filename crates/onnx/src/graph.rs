//! Graphs whose functions are known, and their evaluation.

use std::collections::{HashMap, HashSet};

use rustorch_dispatch::{Call, CallError, Called, Function, Output, Value, missing};

use crate::control::{self, Control};
use crate::data::{Constant, Elements};
use crate::error::{OnnxError, OnnxResult};
use crate::external::Folder;
use crate::operators;
use crate::proto;

/// A graph.
pub(crate) struct Graph {
    inputs: Vec<String>,
    pub(crate) outputs: Vec<String>,
    constants: HashMap<String, Constant>,
    nodes: Vec<Node>,
}

/// A node.
pub(crate) struct Node {
    /// Its name, or that of its first result.
    name: String,
    pub(crate) op: String,
    pub(crate) inputs: Vec<String>,
    pub(crate) outputs: Vec<String>,
    attributes: Vec<(String, Value)>,
    graphs: Vec<(String, Graph)>,
    run: Run,
    /// Values that no later node of the graph reads.
    spent: Vec<String>,
}

#[derive(Clone, Copy)]
enum Run {
    Function(&'static Function),
    Control(Control),
}

/// Reads graphs, and collects what is not supported.
pub(crate) struct Reader<'a> {
    pub(crate) opset: i64,
    pub(crate) folder: Option<&'a mut Folder>,
    /// Each part once, in order.
    pub(crate) unsupported: Vec<String>,
}

impl Reader<'_> {
    pub(crate) fn refuse(&mut self, part: String) {
        if !self.unsupported.contains(&part) {
            self.unsupported.push(part);
        }
    }

    /// A graph, without the nodes that are not supported.
    pub(crate) fn graph(&mut self, graph: &proto::Graph) -> OnnxResult<Graph> {
        if !graph.sparse.is_empty() {
            self.refuse("sparse initializers".to_owned());
        }
        let mut constants = HashMap::new();
        for data in &graph.initializers {
            if let Some(elements) = self.elements(data)? {
                constants.insert(data.name.clone(), Constant::new(elements));
            }
        }
        let mut nodes = Vec::new();
        for node in &graph.nodes {
            nodes.extend(self.node(node)?);
        }
        let names = |infos: &[proto::ValueInfo]| infos.iter().map(|i| i.name.clone()).collect();
        let outputs: Vec<String> = names(&graph.outputs);
        mark_spent(&mut nodes, &outputs);
        Ok(Graph {
            inputs: names(&graph.inputs),
            outputs,
            constants,
            nodes,
        })
    }

    /// The elements of a tensor; of an unsupported type there are none.
    fn elements(&mut self, data: &proto::TensorData) -> OnnxResult<Option<Elements>> {
        match Elements::of(data, self.folder.as_deref_mut()) {
            Ok(elements) => Ok(Some(elements)),
            Err(OnnxError::Unsupported { parts }) => {
                parts.into_iter().for_each(|part| self.refuse(part));
                Ok(None)
            }
            Err(e) => Err(e),
        }
    }

    fn node(&mut self, node: &proto::Node) -> OnnxResult<Option<Node>> {
        let op = node.full_name();
        let run = match (control::named(&op), operators::find(&op, self.opset)) {
            (Some(control), _) => Some(Run::Control(control)),
            (_, Some(function)) => Some(Run::Function(function)),
            _ => None,
        };
        if run.is_none() {
            self.refuse(format!("operator {op}"));
        }
        let (mut attributes, mut graphs) = (Vec::new(), Vec::new());
        for attribute in &node.attributes {
            let name = attribute.name.clone();
            match &attribute.graph {
                Some(graph) => graphs.push((name, self.graph(graph)?)),
                None => attributes.extend(self.attribute(attribute)?.map(|value| (name, value))),
            }
        }
        let first = node.outputs.iter().find(|name| !name.is_empty());
        let name = match (node.name.as_str(), first) {
            ("", Some(first)) => format!("of {first:?}"),
            (name, _) => format!("{name:?}"),
        };
        Ok(run.map(|run| Node {
            name,
            op,
            inputs: node.inputs.clone(),
            outputs: node.outputs.clone(),
            attributes,
            graphs,
            run,
            spent: Vec::new(),
        }))
    }

    fn attribute(&mut self, attribute: &proto::Attribute) -> OnnxResult<Option<Value>> {
        let text = |text: &bytes::Bytes| Value::Text(String::from_utf8_lossy(text).into_owned());
        Ok(Some(match attribute.kind {
            1 => Value::Float(attribute.float.into()),
            2 => Value::Int(attribute.int),
            3 => text(&attribute.text),
            4 => match &attribute.tensor {
                Some(data) => match self.elements(data)? {
                    Some(elements) => Value::Tensor(elements.tensor()?),
                    None => return Ok(None),
                },
                None => {
                    let place = format!("attribute {:?}", attribute.name);
                    return Err(OnnxError::damaged(place, "its tensor is missing"));
                }
            },
            6 => {
                let floats = attribute.floats.iter();
                Value::List(floats.map(|&x| Value::Float(x.into())).collect())
            }
            7 => Value::List(attribute.ints.iter().map(|&x| Value::Int(x)).collect()),
            8 => Value::List(attribute.texts.iter().map(text).collect()),
            13 => Value::Other("a type".to_owned()),
            kind => {
                self.refuse(format!("attribute {:?} of kind {kind}", attribute.name));
                return Ok(None);
            }
        }))
    }
}

impl proto::Node {
    /// The operator, behind its domain if that is not ONNX's own.
    pub(crate) fn full_name(&self) -> String {
        match self.domain.as_str() {
            "" | "ai.onnx" => self.op.clone(),
            domain => format!("{domain}.{}", self.op),
        }
    }
}

/// Notes at each node the values that nothing behind it reads, so that their memory is free then.
fn mark_spent(nodes: &mut [Node], outputs: &[String]) {
    let mut read: HashSet<String> = outputs.iter().cloned().collect();
    for node in nodes.iter_mut().rev() {
        let mut names = Vec::new();
        node.names(&mut names);
        let last = names.into_iter().filter(|name| !read.contains(*name));
        let mut spent: Vec<String> = last.map(str::to_owned).collect();
        read.extend(spent.iter().cloned());
        let unread = node.outputs.iter().filter(|name| !read.contains(*name));
        spent.extend(unread.cloned());
        node.spent = spent;
    }
}

impl Graph {
    /// Evaluates the nodes in their order; they see the values around the graph, too.
    pub(crate) fn evaluate(
        &self,
        around: Option<&Scope>,
        given: Vec<Value>,
    ) -> OnnxResult<Vec<Value>> {
        let names = self.inputs.iter().map(String::as_str);
        let mut scope = Scope {
            graph: self,
            values: names.zip(given).collect(),
            around,
        };
        for node in &self.nodes {
            let results = node.run(&scope).map_err(|e| e.in_node(&node.name))?;
            let named = node.outputs.iter().map(String::as_str).zip(results);
            scope
                .values
                .extend(named.filter(|(name, _)| !name.is_empty()));
            for name in &node.spent {
                scope.values.remove(name.as_str());
            }
        }
        self.outputs.iter().map(|name| scope.get(name)).collect()
    }

    /// The names that the nodes and results read.
    fn names<'a>(&'a self, names: &mut Vec<&'a str>) {
        names.extend(self.outputs.iter().map(String::as_str));
        self.nodes.iter().for_each(|node| node.names(names));
    }

    /// Whether an initializer has this name.
    pub(crate) fn has_constant(&self, name: &str) -> bool {
        self.constants.contains_key(name)
    }

    /// The value of an initializer; `None` of other names.
    pub(crate) fn constant(&self, name: &str) -> OnnxResult<Option<Value>> {
        let constant = self.constants.get(name).map(Constant::tensor).transpose()?;
        Ok(constant.map(Value::Tensor))
    }
}

/// Values by their names, in a graph and around it.
pub(crate) struct Scope<'a> {
    graph: &'a Graph,
    values: HashMap<&'a str, Value>,
    around: Option<&'a Scope<'a>>,
}

impl Scope<'_> {
    /// The value of this name.
    fn get(&self, name: &str) -> OnnxResult<Value> {
        if let Some(value) = self.values.get(name) {
            return Ok(value.clone());
        }
        if let Some(value) = self.graph.constant(name)? {
            return Ok(value);
        }
        match self.around {
            Some(around) => around.get(name),
            None => {
                let problem = "no node before it gives this value";
                Err(OnnxError::damaged(format!("value {name:?}"), problem))
            }
        }
    }
}

impl Node {
    /// The names that the node reads, in its graphs, too.
    fn names<'a>(&'a self, names: &mut Vec<&'a str>) {
        names.extend(self.inputs.iter().map(String::as_str));
        self.graphs.iter().for_each(|(_, graph)| graph.names(names));
    }

    /// The attribute of this name.
    pub(crate) fn attribute(&self, name: &str) -> Option<&Value> {
        let found = self.attributes.iter().find(|(known, _)| known == name);
        found.map(|(_, value)| value)
    }

    /// The graph of this name.
    pub(crate) fn graph(&self, name: &str) -> Called<&Graph> {
        match self.graphs.iter().find(|(known, _)| known == name) {
            Some((_, graph)) => Ok(graph),
            None => missing(format!("{} without {name}", self.op)),
        }
    }

    /// Whether there is a graph of this name.
    pub(crate) fn has_graph(&self, name: &str) -> bool {
        self.graphs.iter().any(|(known, _)| known == name)
    }

    /// The arguments in their order; one that is left out is nothing.
    pub(crate) fn arguments(&self, scope: &Scope) -> OnnxResult<Vec<Value>> {
        let argument = |name: &String| match name.is_empty() {
            true => Ok(Value::None),
            false => scope.get(name),
        };
        self.inputs.iter().map(argument).collect()
    }

    fn run(&self, scope: &Scope) -> OnnxResult<Vec<Value>> {
        match self.run {
            Run::Control(control) => control(self, scope),
            Run::Function(function) => Ok(self.call(function, self.arguments(scope)?)?),
        }
    }

    fn call(&self, function: &Function, arguments: Vec<Value>) -> Called<Vec<Value>> {
        let mut call = Call::bind(function.signature(), arguments, self.attributes.clone())?;
        call.results = self.outputs.iter().filter(|name| !name.is_empty()).count();
        let results = match function.run(&call)? {
            Output::List(results) => results,
            one => vec![one],
        };
        let value = |result| match result {
            Output::Tensor(tensor) => Ok(Value::Tensor(tensor)),
            Output::Value(value) => Ok(value),
            _ => Err(CallError::Mistake(format!(
                "{}: a list among the results",
                self.op
            ))),
        };
        results.into_iter().map(value).collect()
    }
}
