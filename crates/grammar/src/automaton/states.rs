//! The automaton of a network's states.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use crate::network::{Classes, Edge, Network, NodeId, RuleId};
use crate::trie::Bytes;

/// A state, by its number.
pub(super) type StateId = u32;

/// The state without items: nothing follows, and no rule waits for ones that began there.
pub(super) const NOTHING: StateId = 0;

/// A step that was not looked for yet.
const UNKNOWN: StateId = StateId::MAX;
/// A state without steps so far.
const NO_ROW: u32 = u32::MAX;
/// Items in a state at most.
const MAX_ITEMS: usize = 20_000;
/// Items and steps in all states at most.
const MAX_SIZE: usize = 64 << 20;
/// Number of items up to which a state is searched one by one.
const FEW: usize = 24;

/// Grammars can be so ambiguous that there is no end of their states.
#[derive(Clone, Copy, Debug)]
pub(super) struct TooComplex;

/// The text got to a node of a rule that began in the state `origin`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct Item {
    pub(super) node: NodeId,
    pub(super) origin: StateId,
}

/// A token that leads to an item: `id`, or any but it.
#[derive(Clone, Copy, Debug)]
pub(super) struct TokenStep {
    pub(super) id: u32,
    pub(super) negated: bool,
    to: Item,
}

impl TokenStep {
    pub(super) fn allows(&self, token: u32) -> bool {
        (self.id == token) != self.negated
    }
}

/// The facts of a state that follow from its items.
#[derive(Default)]
struct State {
    /// Items from which the others follow by ways that take nothing within their rules.
    roots: Vec<Item>,
    /// Classes of bytes, first and last, that lead to an item.
    steps: Vec<(u8, u8, Item)>,
    tokens: Vec<TokenStep>,
    /// Items that come once a text of a rule ends that begins here, by rules.
    waiting: Vec<(RuleId, Item)>,
    /// Does a whole text of a rule end here?
    is_end: bool,
}

/// The bytes that lead from a state to itself, or to one that is like it.
#[derive(Clone, Copy)]
pub(super) struct Loops {
    bytes: Bytes,
    /// For texts of how many bytes it is like that one.
    reach: usize,
}

impl Loops {
    /// Do texts of these bytes, of at most `most` bytes, lead there?
    pub(super) fn has(self, bytes: Bytes, most: usize) -> bool {
        bytes.within(self.bytes) && most <= self.reach
    }
}

/// The states of a network that texts have got to.
pub(super) struct States {
    network: Arc<Network>,
    states: Vec<State>,
    by_items: HashMap<Box<[Item]>, StateId>,
    /// The start of a state's steps in `steps`.
    rows: Vec<u32>,
    /// The next state for each class of bytes.
    steps: Vec<StateId>,
    /// The steps of states that were asked for them.
    loops: HashMap<StateId, Loops>,
    /// Items and steps.
    size: usize,
}

impl States {
    pub(super) fn new(network: Arc<Network>) -> Self {
        Self {
            network,
            states: vec![State::default()],
            by_items: HashMap::from([(Box::default(), NOTHING)]),
            rows: vec![NO_ROW],
            steps: Vec::new(),
            loops: HashMap::new(),
            size: 0,
        }
    }

    pub(super) fn network(&self) -> &Network {
        &self.network
    }

    /// The state before a text.
    pub(super) fn start(&mut self) -> Result<StateId, TooComplex> {
        self.state(vec![Item {
            node: self.network.start(0),
            origin: NOTHING,
        }])
    }

    /// Size, about: a multiple of eight bytes.
    pub(super) fn size(&self) -> usize {
        self.size
    }

    /// The state behind a byte of this class: [`NOTHING`], if none may come.
    #[inline]
    pub(super) fn step(&mut self, state: StateId, class: u8) -> Result<StateId, TooComplex> {
        let row = self.rows[state as usize];
        if row != NO_ROW {
            let next = self.steps[row as usize + class as usize];
            if next != UNKNOWN {
                return Ok(next);
            }
        }
        self.find_step(state, class)
    }

    fn find_step(&mut self, state: StateId, class: u8) -> Result<StateId, TooComplex> {
        let at = self.row(state) + class as usize;
        if self.steps[at] != UNKNOWN {
            return Ok(self.steps[at]);
        }
        let steps = self.states[state as usize].steps.iter();
        let items = steps
            .filter(|(first, last, _)| (*first..=*last).contains(&class))
            .map(|&(_, _, to)| to);
        let next = self.state(items.collect())?;
        self.steps[at] = next;
        Ok(next)
    }

    /// The start of a state's steps.
    fn row(&mut self, state: StateId) -> usize {
        if self.rows[state as usize] == NO_ROW {
            let classes = self.network.class_count();
            let row = self.steps.len();
            self.rows[state as usize] = row as u32;
            self.steps.resize(row + classes, NOTHING);
            for &(first, last, _) in &self.states[state as usize].steps {
                self.steps[row + first as usize..=row + last as usize].fill(UNKNOWN);
            }
            self.size += classes / 2 + 1;
        }
        self.rows[state as usize] as usize
    }

    /// The bytes that lead from a state to itself, or to one that is like it.
    pub(super) fn loops(&mut self, state: StateId) -> Result<Loops, TooComplex> {
        if let Some(&loops) = self.loops.get(&state) {
            return Ok(loops);
        }
        let (items, reach) = self.twins(self.own_roots(state));
        let mut classes = Classes::default();
        let mut loops = Loops {
            bytes: Bytes::default(),
            reach,
        };
        for class in 0..=self.network.class(u8::MAX) {
            let next = self.step(state, class)?;
            if next == NOTHING || self.is_end(next) != self.is_end(state) {
                continue;
            }
            let (others, reach) = self.twins(self.own_roots(next));
            if items == others {
                classes.insert(class);
                loops.reach = loops.reach.min(reach);
            }
        }
        loops.bytes = self.network.bytes(classes);
        self.loops.insert(state, loops);
        Ok(loops)
    }

    /// Items, merged with those that are like them, in order, with the lengths of their texts.
    pub(super) fn twins(&self, items: impl Iterator<Item = Item>) -> (Vec<Item>, usize) {
        let mut reach = usize::MAX;
        let twin = |item: Item| match self.network.twin(item.node) {
            Some(twin) => {
                reach = reach.min(twin.reach as usize);
                let node = twin.node;
                Item { node, ..item }
            }
            None => item,
        };
        let mut items: Vec<Item> = items.map(twin).collect();
        items.sort_unstable();
        items.dedup();
        (items, reach)
    }

    /// The roots of a state but for rules that began there.
    fn own_roots(&self, state: StateId) -> impl Iterator<Item = Item> {
        let roots = self.roots(state).iter().copied();
        roots.filter(move |item| item.origin != state)
    }

    /// For each class of bytes the state behind one that does not begin another rule.
    pub(super) fn steps_alone(&mut self, state: StateId) -> Result<Vec<StateId>, TooComplex> {
        let alone = |&&(_, _, to): &&(u8, u8, Item)| to.origin != state;
        let steps = self.states[state as usize].steps.iter().filter(alone);
        let steps: Vec<_> = steps.copied().collect();
        let mut next = Vec::with_capacity(self.network.class_count());
        for class in 0..=self.network.class(u8::MAX) {
            let steps = steps.iter();
            let steps = steps.filter(|(first, last, _)| (*first..=*last).contains(&class));
            next.push(self.state(steps.map(|&(_, _, to)| to).collect())?);
        }
        Ok(next)
    }

    /// The state behind a token with this `text`, if it has one.
    pub(super) fn step_token(
        &mut self,
        state: StateId,
        token: u32,
        text: &[u8],
    ) -> Result<StateId, TooComplex> {
        let mut behind_text = if text.is_empty() { NOTHING } else { state };
        for &byte in text {
            behind_text = self.step(behind_text, self.network.class(byte))?;
        }
        let tokens = self.states[state as usize].tokens.iter();
        let named: Vec<Item> = tokens
            .filter(|step| step.allows(token))
            .map(|step| step.to)
            .collect();
        match named.is_empty() {
            true => Ok(behind_text),
            // Its roots are as good as the items that it was made of.
            false => self.state(self.own_roots(behind_text).chain(named).collect()),
        }
    }

    /// The tokens that may come by name.
    pub(super) fn tokens(&self, state: StateId) -> &[TokenStep] {
        &self.states[state as usize].tokens
    }

    /// Does a text end here that is all of a rule?
    pub(super) fn is_end(&self, state: StateId) -> bool {
        self.states[state as usize].is_end
    }

    /// Returns whether anything may follow.
    pub(super) fn goes_on(&self, state: StateId) -> bool {
        let state = &self.states[state as usize];
        !(state.steps.is_empty() && state.tokens.is_empty())
    }

    /// Items from which the others follow by ways that take nothing within their rules.
    pub(super) fn roots(&self, state: StateId) -> &[Item] {
        &self.states[state as usize].roots
    }

    /// The state in which a text of `rule` ended that began in `origin`.
    pub(super) fn behind(&mut self, origin: StateId, rule: RuleId) -> Result<StateId, TooComplex> {
        let items = self.waiting(origin, rule).collect();
        self.state(items)
    }

    fn waiting(&self, origin: StateId, rule: RuleId) -> impl Iterator<Item = Item> {
        let all = &self.states[origin as usize].waiting;
        let first = all.partition_point(|&(other, _)| other < rule);
        let found = all[first..]
            .iter()
            .take_while(move |(other, _)| *other == rule);
        found.map(|&(_, item)| item)
    }

    /// The state of these items.
    pub(super) fn state(&mut self, mut items: Vec<Item>) -> Result<StateId, TooComplex> {
        items.sort_unstable();
        items.dedup();
        if let Some(&state) = self.by_items.get(items.as_slice()) {
            return Ok(state);
        }
        let id = self.states.len() as StateId;
        let state = self.close(id, &items)?;
        let parts = state.steps.len() * 2 + state.waiting.len() * 2 + state.roots.len();
        self.size += parts + items.len() + 32;
        if self.size > MAX_SIZE {
            return Err(TooComplex);
        }
        self.states.push(state);
        self.rows.push(NO_ROW);
        self.by_items.insert(items.into(), id);
        Ok(id)
    }

    /// Adds the items that follow from items: rules begin, and callers continue where rules end.
    fn close(&self, id: StateId, items: &[Item]) -> Result<State, TooComplex> {
        let mut state = State::default();
        let mut closure = Closure::default();
        for &item in items {
            closure.add(item)?;
            state.roots.push(item);
        }
        while let Some(item) = closure.next() {
            for edge in self.network.edges(item.node) {
                let to = |node| Item { node, ..item };
                match *edge {
                    Edge::Empty { to: node } => _ = closure.add(to(node))?,
                    Edge::Bytes {
                        first,
                        last,
                        to: node,
                    } => {
                        state.steps.push((first, last, to(node)));
                    }
                    Edge::Token {
                        id,
                        negated,
                        to: node,
                    } => state.tokens.push(TokenStep {
                        id,
                        negated,
                        to: to(node),
                    }),
                    Edge::Call { rule, to: node } => {
                        state.waiting.push((rule, to(node)));
                        let node = self.network.start(rule);
                        let start = Item { node, origin: id };
                        // Items that began here come from the rule's start alone.
                        if closure.add(start)? {
                            state.roots.push(start);
                        }
                        if self.network.is_nullable(rule) {
                            closure.add(to(node))?;
                        }
                    }
                }
            }
            // A rule that began and ended here has the empty text, with which callers went on.
            if self.network.is_end(item.node) && item.origin != id {
                state.is_end |= item.origin == NOTHING;
                let rule = self.network.rule_of(item.node);
                for waiting in self.waiting(item.origin, rule) {
                    if closure.add(waiting)? {
                        state.roots.push(waiting);
                    }
                }
            }
        }
        state.waiting.sort_unstable();
        state.waiting.dedup();
        Ok(state)
    }
}

/// Items, each once, in the order in which they were found.
#[derive(Default)]
struct Closure {
    items: Vec<Item>,
    /// The same, where they are many.
    known: HashSet<Item>,
    /// Number of taken ones.
    taken: usize,
}

impl Closure {
    /// Whether it is a new one.
    fn add(&mut self, item: Item) -> Result<bool, TooComplex> {
        let new = match self.items.len() {
            ..FEW => !self.items.contains(&item),
            FEW => {
                self.known.extend(&self.items);
                self.known.insert(item)
            }
            MAX_ITEMS.. => return Err(TooComplex),
            _ => self.known.insert(item),
        };
        if new {
            self.items.push(item);
        }
        Ok(new)
    }

    /// The next one that was not taken yet.
    fn next(&mut self) -> Option<Item> {
        let item = self.items.get(self.taken).copied();
        self.taken += usize::from(item.is_some());
        item
    }
}
