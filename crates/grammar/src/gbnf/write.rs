//! Writing a grammar as a network.

use std::collections::HashMap;

use regex_syntax::hir::{ClassUnicode, ClassUnicodeRange};

use super::facts::Fact;
use super::{Alternatives, Element, Item, Rule};
use crate::graph::for_each_component;
use crate::network::{Builder, Network, NodeId, RuleId};

/// Number of the network's nodes and edges from which rules are no longer written where they are
/// used.
const LARGE: usize = 300_000;
/// Rules and groups within each other in which another rule is still written where it is used.
const MAX_DEPTH: usize = 100;

/// A class with more characters than this is wide.
const WIDE: u32 = 16;

/// The texts of the rule `root`; none, if it has no text.
///
/// A call at a rule's end continues in the caller's place. A rule that begins with itself continues where it ended. So
/// neither needs a record; one that is not recursive is written where it is used. The rest are calls. A rule that very
/// many tokens can begin is called, too, if it has several uses: its results then serve all of them.
pub(super) fn write(rules: &[Rule], root: usize) -> Option<Network> {
    let mut writer = Writer {
        rules,
        apart: apart(rules),
        taking: Fact::TakesBytes.of_rules(rules),
        builder: Builder::default(),
        called: HashMap::new(),
        unwritten: Vec::new(),
        scope: Scope::default(),
        depth: 0,
    };
    writer.rule_id(root);
    while let Some((rule, id)) = writer.unwritten.pop() {
        let (start, end) = writer.builder.begin(id);
        writer.rule(rule, start, end, true);
    }
    writer.builder.finish()
}

/// The writer's state of a rule.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Apart {
    /// Part of the rules that use it.
    No,
    /// Called: it is wide and used more than once.
    Wide,
    /// Called, but where a rule ends with it: it is recursive, and does not only end with itself.
    Recursive,
}

/// A use of a rule in another.
struct Use {
    rule: usize,
    /// Whether it is at the end of the other's text.
    last: bool,
}

fn apart(rules: &[Rule]) -> Vec<Apart> {
    let mut wide = Vec::with_capacity(rules.len());
    let mut uses = vec![Vec::new(); rules.len()];
    let mut users = vec![Vec::new(); rules.len()];
    // Pairs of rules of which the one has the other, but not as what a text ends with.
    let mut middle: Vec<(usize, usize)> = Vec::new();
    for (user, rule) in rules.iter().enumerate() {
        let mut found = Vec::new();
        wide.push(collect_uses(rule.alternatives(), true, &mut found));
        for Use { rule: used, last } in found {
            uses[user].push(used);
            users[used].push(user);
            middle.extend((!last).then_some((user, used)));
        }
    }
    let mut component = vec![0; rules.len()];
    let mut components = 0;
    let ways = |rule: usize, parts: &mut Vec<usize>| parts.extend(&uses[rule]);
    for_each_component(rules.len(), ways, |members| {
        members
            .iter()
            .for_each(|&rule| component[rule] = components);
        components += 1;
    });
    // A rule with a part, not its last, that has the rule in it is recursive. So is its whole component.
    let mut recursive = vec![false; components];
    for (user, used) in middle {
        recursive[component[user]] |= component[user] == component[used];
    }
    let wide = wholes(&users, wide);
    let apart = |rule: usize| {
        if recursive[component[rule]] {
            Apart::Recursive
        } else if users[rule].len() > 1 && wide[rule] {
            Apart::Wide
        } else {
            Apart::No
        }
    };
    (0..rules.len()).map(apart).collect()
}

/// Adds the uses of rules in texts. `last` says whether these are at the end of a rule.
fn collect_uses(texts: &Alternatives, last: bool, uses: &mut Vec<Use>) -> bool {
    let mut wide = false;
    for items in texts {
        for (i, item) in items.iter().enumerate() {
            let once = item.max == Some(1);
            let last = last && once && i + 1 == items.len();
            match &item.what {
                Element::Rule(rule) => uses.push(Use { rule: *rule, last }),
                Element::Group(texts) => wide |= collect_uses(texts, last, uses),
                element => wide |= is_wide(element),
            }
        }
    }
    wide
}

/// Adds to rules those that have one of them as a part, by the users of each.
fn wholes(users: &[Vec<usize>], mut rules: Vec<bool>) -> Vec<bool> {
    let mut left: Vec<usize> = (0..rules.len()).filter(|&rule| rules[rule]).collect();
    while let Some(rule) = left.pop() {
        for &user in &users[rule] {
            if !std::mem::replace(&mut rules[user], true) {
                left.push(user);
            }
        }
    }
    rules
}

fn is_wide(element: &Element) -> bool {
    match element {
        Element::Any => true,
        Element::Class { negated, ranges } => {
            let size = |&(first, last)| u32::from(last) - u32::from(first) + 1;
            *negated || ranges.iter().map(size).sum::<u32>() > WIDE
        }
        _ => false,
    }
}

fn all_take_bytes(texts: &Alternatives, rules: &[bool]) -> bool {
    let takes = |item: &Item| item.min > 0 && takes_bytes(&item.what, rules);
    texts.iter().all(|items| items.iter().any(takes))
}

fn takes_bytes(element: &Element, rules: &[bool]) -> bool {
    match element {
        Element::Text(_) | Element::Class { .. } | Element::Any => true,
        Element::Token { .. } => false,
        Element::Rule(rule) => rules[*rule],
        Element::Group(texts) => all_take_bytes(texts, rules),
    }
}

struct Writer<'a> {
    rules: &'a [Rule],
    apart: Vec<Apart>,
    /// Whether each text of a rule has bytes.
    taking: Vec<bool>,
    builder: Builder,
    /// Rules that have automata of their own.
    called: HashMap<usize, RuleId>,
    /// The rules that are not written yet.
    unwritten: Vec<(usize, RuleId)>,
    /// The rule that is being written.
    scope: Scope,
    /// Rules and groups within each other that are written now.
    depth: usize,
}

/// A rule that is written, and those that its texts end with.
#[derive(Default)]
struct Scope {
    end: NodeId,
    /// If it has its own automaton: the rule, and where it begins.
    whole: Option<(usize, NodeId)>,
    /// The first nodes of these rules.
    starts: HashMap<usize, NodeId>,
    /// The rules that are not written yet.
    unwritten: Vec<(usize, NodeId)>,
}

impl<'a> Writer<'a> {
    fn rule_id(&mut self, rule: usize) -> RuleId {
        *self.called.entry(rule).or_insert_with(|| {
            let id = self.builder.new_rule();
            self.unwritten.push((rule, id));
            id
        })
    }

    /// Writes the texts of a rule between two nodes.
    fn rule(&mut self, rule: usize, start: NodeId, end: NodeId, whole: bool) {
        let scope = Scope {
            end,
            whole: whole.then_some((rule, start)),
            starts: HashMap::from([(rule, start)]),
            unwritten: vec![(rule, start)],
        };
        let outer = std::mem::replace(&mut self.scope, scope);
        while let Some((rule, start)) = self.scope.unwritten.pop() {
            self.alternatives(self.rules[rule].alternatives(), start, end);
        }
        self.scope = outer;
    }

    fn alternatives(&mut self, texts: &'a Alternatives, from: NodeId, to: NodeId) {
        for items in texts {
            self.sequence(items, from, to);
        }
    }

    fn sequence(&mut self, items: &'a [Item], mut from: NodeId, to: NodeId) {
        let Some((last, others)) = items.split_last() else {
            return self.builder.empty(from, to);
        };
        for item in others {
            let next = self.builder.node();
            self.item(item, from, next);
            from = next;
        }
        self.item(last, from, to);
    }

    fn item(&mut self, item: &'a Item, from: NodeId, to: NodeId) {
        let times = (item.min, item.max);
        let pairs = self.builder.repetition(from, times, to);
        let mut sizes = vec![self.builder.sizes()];
        for &(from, to) in &pairs {
            self.element(&item.what, from, to);
            sizes.push(self.builder.sizes());
        }
        if takes_bytes(&item.what, &self.taking) {
            self.builder.mark_twins(times, &pairs, &sizes);
        }
    }

    fn element(&mut self, element: &'a Element, from: NodeId, to: NodeId) {
        match element {
            Element::Text(chars) => {
                let text: String = chars.iter().collect();
                self.builder.bytes(from, text.as_bytes(), to);
            }
            Element::Class { negated, ranges } => {
                let class = class(ranges, *negated);
                self.builder.character(from, &class, to);
            }
            Element::Any => self.builder.character(from, &class(&[], true), to),
            Element::Token { id, negated } => self.builder.token(from, *id, *negated, to),
            Element::Rule(rule) => self.use_rule(*rule, from, to),
            Element::Group(texts) => {
                self.depth += 1;
                self.alternatives(texts, from, to);
                self.depth -= 1;
            }
        }
    }

    fn use_rule(&mut self, rule: usize, from: NodeId, to: NodeId) {
        let small = self.builder.size() < LARGE;
        if self.scope.whole == Some((rule, from)) {
            // A rule that begins with itself goes on where it ended.
            return self.builder.empty(self.scope.end, to);
        }
        if to == self.scope.end && self.apart[rule] != Apart::Wide {
            if let Some(&start) = self.scope.starts.get(&rule) {
                return self.builder.empty(from, start);
            }
            if small {
                let start = self.builder.node();
                self.scope.starts.insert(rule, start);
                self.scope.unwritten.push((rule, start));
                return self.builder.empty(from, start);
            }
        }
        if small && self.depth < MAX_DEPTH && self.apart[rule] == Apart::No {
            let start = self.builder.node();
            self.builder.empty(from, start);
            self.depth += 1;
            self.rule(rule, start, to, false);
            self.depth -= 1;
            return;
        }
        let id = self.rule_id(rule);
        self.builder.call(from, id, to);
    }
}

/// Characters of these ranges, or all others.
fn class(ranges: &[(char, char)], negated: bool) -> ClassUnicode {
    let ranges = ranges.iter();
    let ranges = ranges.map(|&(first, last)| ClassUnicodeRange::new(first, last));
    let mut class = ClassUnicode::new(ranges);
    if negated {
        class.negate();
    }
    class
}
