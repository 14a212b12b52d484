//! The tokens that may follow a state.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use llguidance::toktrie::SimpleVob;

use super::states::{Item, NOTHING, StateId, States, TooComplex};
use crate::network::{Classes, Network, RuleId};
use crate::trie::{Bytes, Trie};

/// A node with more below it is looked at as a whole.
const MANY: usize = 8;
/// Bytes of masks and parts of masks that are kept.
const MAX_KEPT: usize = 64 << 20;

/// The states of a network, with the masks that were found so far.
pub(super) struct Masks {
    pub(super) states: States,
    trie: Arc<Trie>,
    masks: HashMap<StateId, Arc<SimpleVob>>,
    parts: HashMap<StateId, Arc<Part>>,
    /// Bytes that masks and parts take.
    kept: usize,
}

/// The effects of tokens that begin within a text of a rule, whatever called the rule.
struct Part {
    /// The tokens that end within the text, or with it.
    tokens: SimpleVob,
    /// Nodes of the trie that are one byte behind the end of such a text, by that byte's class: the
    /// caller of the rule decides what may follow.
    outside: BTreeMap<u8, Vec<u32>>,
}

impl Masks {
    pub(super) fn new(network: Arc<Network>, trie: Arc<Trie>) -> Self {
        Self {
            states: States::new(network),
            trie,
            masks: HashMap::new(),
            parts: HashMap::new(),
            kept: 0,
        }
    }

    /// The tokens that may follow.
    pub(super) fn mask(&mut self, state: StateId) -> Result<Arc<SimpleVob>, TooComplex> {
        if let Some(mask) = self.masks.get(&state) {
            return Ok(mask.clone());
        }
        let mask = Arc::new(self.find(state)?);
        self.keep(self.trie.len() / 8);
        self.masks.insert(state, mask.clone());
        Ok(mask)
    }

    /// Makes room for `bytes` more bytes.
    fn keep(&mut self, bytes: usize) {
        if self.kept + bytes > MAX_KEPT {
            self.masks.clear();
            self.parts.clear();
            self.kept = 0;
        }
        self.kept += bytes;
    }

    fn find(&mut self, state: StateId) -> Result<SimpleVob, TooComplex> {
        let mut mask = SimpleVob::alloc(self.trie.len());
        for step in self.states.tokens(state) {
            (0..self.trie.len() as u32)
                .filter(|&token| step.allows(token))
                .for_each(|token| mask.allow_token(token));
        }
        for ((origin, rule), items) in self.by_rules(state) {
            let part = self.part(items, rule)?;
            mask.or(&part.tokens);
            if origin != NOTHING {
                let behind = self.states.behind(origin, rule)?;
                self.add_outside(behind, &part, &mut mask)?;
            }
        }
        Ok(mask)
    }

    /// The roots of a state, by the start of their rules and their kind, without other rules.
    fn by_rules(&self, state: StateId) -> BTreeMap<(StateId, RuleId), Vec<Item>> {
        let mut sorted: BTreeMap<_, Vec<Item>> = BTreeMap::new();
        for &Item { node, origin } in self.states.roots(state) {
            let rule = self.states.network().rule_of(node);
            let items = sorted.entry((origin, rule)).or_default();
            let origin = NOTHING;
            items.push(Item { node, origin });
        }
        sorted
    }

    /// Adds the tokens that leave a rule with `part`, and go on `behind` it.
    fn add_outside(
        &mut self,
        behind: StateId,
        part: &Part,
        mask: &mut SimpleVob,
    ) -> Result<(), TooComplex> {
        let network = self.states.network();
        let mut walk = Walk::new(&self.trie, network, Classes::default(), mask);
        for (&class, nodes) in &part.outside {
            let next = self.states.step(behind, class)?;
            if next == NOTHING {
                continue;
            }
            for &node in nodes {
                walk.go(&mut self.states, node as usize, next)?;
            }
        }
        Ok(())
    }

    /// The part of items of `rule`, which is all there is, but for the rules that begin there.
    fn part(&mut self, items: Vec<Item>, rule: RuleId) -> Result<Arc<Part>, TooComplex> {
        let state = self.states.state(items.clone())?;
        if let Some(part) = self.parts.get(&state) {
            return Ok(part.clone());
        }
        let (twins, reach) = self.states.twins(items.into_iter());
        let part = match reach {
            usize::MAX => self.walk(state, rule, 0, Part::new(self.trie.len()))?,
            _ => {
                let twin = self.part(twins, rule)?;
                self.walk(state, rule, reach, twin.up_to(reach, &self.trie))?
            }
        };
        let nodes: usize = part.outside.values().map(Vec::len).sum();
        self.keep(self.trie.len() / 8 + nodes * 4);
        let part = Arc::new(part);
        self.parts.insert(state, part.clone());
        Ok(part)
    }

    /// Adds to `part` the tokens with more than `known` bytes.
    fn walk(
        &mut self,
        state: StateId,
        rule: RuleId,
        known: usize,
        mut part: Part,
    ) -> Result<Part, TooComplex> {
        let first = self.states.steps_alone(state)?;
        let network = self.states.network();
        let mut walk = Walk {
            known,
            outside: std::mem::take(&mut part.outside),
            ..Walk::new(&self.trie, network, network.follow(rule), &mut part.tokens)
        };
        for top in self.trie.children(0) {
            let next = first[self.states.network().class(self.trie.byte(top)) as usize];
            if next != NOTHING {
                walk.go(&mut self.states, top, next)?;
            }
        }
        part.outside = walk.outside;
        Ok(part)
    }
}

impl Part {
    fn new(tokens: usize) -> Self {
        Self {
            tokens: SimpleVob::alloc(tokens),
            outside: BTreeMap::new(),
        }
    }

    /// The part without longer tokens.
    fn up_to(&self, bytes: usize, trie: &Trie) -> Self {
        let mut tokens = self.tokens.clone();
        for &token in trie.longer_than(bytes) {
            tokens.disallow_token(token);
        }
        let near = |nodes: &Vec<u32>| {
            let nodes = nodes.iter().copied();
            nodes
                .filter(|&node| trie.depth(node as usize) <= bytes)
                .collect()
        };
        let outside = self.outside.iter();
        Self {
            tokens,
            outside: outside
                .map(|(&class, nodes)| (class, near(nodes)))
                .collect(),
        }
    }
}

/// A way through the nodes of the trie that can be got to.
struct Walk<'a> {
    trie: &'a Trie,
    /// The bytes that may follow the end of a text.
    follow: Classes,
    /// The other bytes.
    inside: Bytes,
    /// The tokens of all nodes that were got to.
    tokens: &'a mut SimpleVob,
    /// Longest known results; shorter ones are not looked for.
    known: usize,
    /// Nodes one byte behind the end of a text, if the byte may follow it, by its class.
    outside: BTreeMap<u8, Vec<u32>>,
}

impl<'a> Walk<'a> {
    fn new(trie: &'a Trie, network: &Network, follow: Classes, tokens: &'a mut SimpleVob) -> Self {
        Self {
            trie,
            follow,
            inside: Bytes::of(|byte| !follow.contains(network.class(byte))),
            tokens,
            known: 0,
            outside: BTreeMap::new(),
        }
    }

    /// Goes to `top`, where the state is `state`, and all below it.
    fn go(&mut self, states: &mut States, top: usize, state: StateId) -> Result<(), TooComplex> {
        let trie = self.trie;
        // The states of the nodes on the way, and whether texts end there.
        let mut path: Vec<(StateId, bool)> = Vec::new();
        let mut node = top;
        let end = trie.end(top);
        while node < end {
            if trie.deepest(node) <= self.known {
                node = trie.end(node);
                continue;
            }
            path.truncate(trie.depth(node) - trie.depth(top));
            let next = match path.last() {
                None => state,
                Some(&(before, is_end)) => {
                    let class = states.network().class(trie.byte(node));
                    let new = trie.depth(node) > self.known;
                    if is_end && new && self.follow.contains(class) {
                        self.outside.entry(class).or_default().push(node as u32);
                    }
                    states.step(before, class)?
                }
            };
            if next == NOTHING {
                node = trie.end(node);
                continue;
            }
            self.add(trie.tokens(node));
            let is_end = states.is_end(next);
            let below = trie.bytes_below(node);
            let most = trie.deepest(node) - trie.depth(node);
            let many = trie.end(node) - node > MANY;
            let inside = !is_end || below.within(self.inside);
            if many && inside && states.loops(next)?.has(below, most) {
                self.add(trie.tokens_below(node));
                node = trie.end(node);
                continue;
            }
            path.push((next, is_end));
            node += 1;
        }
        Ok(())
    }

    fn add(&mut self, tokens: &[u32]) {
        for &token in tokens {
            self.tokens.allow_token(token);
        }
    }
}
