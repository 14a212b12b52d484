//! Depth of schemas, and stack for going through them.

use std::collections::HashMap;
use std::thread;

use serde_json::{Map, Value};

use crate::graph::for_each_component;

/// Levels that the stack of any thread has room for.
const SHALLOW: usize = 64;
/// Levels that are gone through at most.
pub(super) const DEEPEST: usize = 16_384;
/// Bytes of the stack that llguidance takes for a level, without optimisation.
const LEVEL: usize = 24 << 10;

/// Number of levels that llguidance goes down at most, as it follows references when it meets them.
pub(super) fn levels(schema: &Value, definitions: &Map<String, Value>) -> usize {
    let mut schemas = vec![schema];
    schemas.extend(definitions.values());
    let numbers: HashMap<&str, usize> = definitions.keys().map(String::as_str).zip(1..).collect();
    let ways = |schema: usize, to: &mut Vec<usize>| references(schemas[schema], &numbers, to);
    let mut below = vec![0; schemas.len()];
    let mut used = Vec::new();
    for_each_component(schemas.len(), ways, |members| {
        used.clear();
        members.iter().for_each(|&schema| ways(schema, &mut used));
        let deepest = used.iter().map(|&schema| below[schema]).max().unwrap_or(0);
        let own: usize = members.iter().map(|&schema| depth(schemas[schema])).sum();
        members
            .iter()
            .for_each(|&schema| below[schema] = own + deepest);
    });
    below[0]
}

/// Adds the numbers of the definitions that a value refers to.
fn references(value: &Value, numbers: &HashMap<&str, usize>, to: &mut Vec<usize>) {
    match value {
        Value::Object(all) => {
            let reference = all.get("$ref").and_then(Value::as_str);
            let name = reference.map(|it| it.trim_start_matches("#/$defs/"));
            to.extend(name.and_then(|name| numbers.get(name)));
            all.values().for_each(|part| references(part, numbers, to));
        }
        Value::Array(all) => all.iter().for_each(|part| references(part, numbers, to)),
        _ => {}
    }
}

/// Containers within each other.
fn depth(value: &Value) -> usize {
    match value {
        Value::Object(all) => 1 + all.values().map(depth).max().unwrap_or(0),
        Value::Array(all) => 1 + all.iter().map(depth).max().unwrap_or(0),
        _ => 0,
    }
}

/// Runs `work` with stack for `levels` levels.
pub(super) fn with_room<T: Send>(
    levels: usize,
    work: impl FnOnce() -> T + Send,
) -> std::io::Result<T> {
    if levels <= SHALLOW {
        return Ok(work());
    }
    thread::scope(|scope| {
        let builder = thread::Builder::new().stack_size((SHALLOW + levels) * LEVEL);
        let result = builder.spawn_scoped(scope, work)?.join();
        Ok(result.unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
    })
}
