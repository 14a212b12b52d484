//! Consequences of statements and components of graphs, found in linear time.

/// Statements that hold once enough of their parts do.
#[derive(Default)]
pub(crate) struct Statements {
    /// Number of a statement's parts that are still open.
    missing: Vec<usize>,
    /// The statements that one is a part of.
    wholes: Vec<Vec<usize>>,
}

/// A statement, by its number.
pub(crate) type Statement = usize;

impl Statements {
    /// A statement that holds once `parts` of its parts do.
    pub(crate) fn add(&mut self, parts: usize) -> Statement {
        self.missing.push(parts);
        self.wholes.push(Vec::new());
        self.missing.len() - 1
    }

    /// A statement that holds, or one that never does.
    pub(crate) fn constant(&mut self, holds: bool) -> Statement {
        self.add(usize::from(!holds))
    }

    /// A statement that holds once all of these do.
    pub(crate) fn all(&mut self, parts: &[Statement]) -> Statement {
        let whole = self.add(parts.len());
        parts.iter().for_each(|&part| self.join(part, whole));
        whole
    }

    /// A statement that holds once one of these does.
    pub(crate) fn any(&mut self, parts: &[Statement]) -> Statement {
        let whole = self.add(1);
        parts.iter().for_each(|&part| self.join(part, whole));
        whole
    }

    /// Makes a statement a part of another.
    pub(crate) fn join(&mut self, part: Statement, whole: Statement) {
        self.wholes[part].push(whole);
    }

    /// Returns for each statement, in their order, whether it holds. Each part is looked at once (Dowling and
    /// Gallier, "Linear-time algorithms for testing the satisfiability of propositional Horn formulae", 1984).
    pub(crate) fn solve(mut self) -> Vec<bool> {
        let mut holding: Vec<Statement> = (0..self.missing.len())
            .filter(|&statement| self.missing[statement] == 0)
            .collect();
        while let Some(part) = holding.pop() {
            for &whole in &self.wholes[part] {
                if self.missing[whole] > 0 {
                    self.missing[whole] -= 1;
                    if self.missing[whole] == 0 {
                        holding.push(whole);
                    }
                }
            }
        }
        self.missing.iter().map(|&missing| missing == 0).collect()
    }
}

/// Hands the strongly connected components of a graph of `count` nodes to `found`. Each comes behind those that it
/// leads to (Tarjan, "Depth-first search and linear graph algorithms", 1972). `ways` adds where a node leads, and is
/// asked once for each.
pub(crate) fn for_each_component(
    count: usize,
    mut ways: impl FnMut(usize, &mut Vec<usize>),
    mut found: impl FnMut(&[usize]),
) {
    const NEW: usize = usize::MAX;
    const DONE: usize = usize::MAX - 1;
    // The order in which nodes were met, and the earliest of an unfinished component that each leads to.
    let (mut order, mut earliest) = (vec![NEW; count], vec![0; count]);
    let mut met = 0;
    let mut unfinished: Vec<usize> = Vec::new();
    // Nodes on the way, with where their untried ways begin in `untried`.
    let mut path: Vec<(usize, usize)> = Vec::new();
    let mut untried: Vec<usize> = Vec::new();
    for root in 0..count {
        let mut next = (order[root] == NEW).then_some(root);
        loop {
            if let Some(node) = next.take() {
                (order[node], earliest[node]) = (met, met);
                met += 1;
                unfinished.push(node);
                path.push((node, untried.len()));
                ways(node, &mut untried);
            }
            let Some(&(node, first)) = path.last() else {
                break;
            };
            if untried.len() > first {
                let to = untried.pop().unwrap_or(node);
                match order[to] {
                    NEW => next = Some(to),
                    DONE => {}
                    at => earliest[node] = earliest[node].min(at),
                }
                continue;
            }
            path.pop();
            if let Some(&(before, _)) = path.last() {
                earliest[before] = earliest[before].min(earliest[node]);
            }
            if earliest[node] == order[node] {
                let start = unfinished.iter().rposition(|&other| other == node);
                let members = unfinished.split_off(start.unwrap_or(0));
                members.iter().for_each(|&member| order[member] = DONE);
                found(&members);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn components_come_behind_those_that_they_lead_to() {
        let graph: [&[usize]; 7] = [&[1, 5], &[2], &[1, 3], &[3, 4], &[], &[0, 4], &[]];
        let mut found: Vec<Vec<usize>> = Vec::new();
        let mut asked = [0; 7];
        let ways = |node: usize, out: &mut Vec<usize>| {
            asked[node] += 1;
            out.extend(graph[node]);
        };
        for_each_component(7, ways, |members| {
            let mut members = members.to_vec();
            members.sort_unstable();
            found.push(members);
        });
        assert_eq!(asked, [1; 7]);
        let place = |node: usize| found.iter().position(|all| all.contains(&node)).unwrap();
        assert_eq!(found.len(), 5);
        assert_eq!(
            (&found[place(0)], &found[place(1)]),
            (&vec![0, 5], &vec![1, 2])
        );
        assert!(place(4) < place(3) && place(3) < place(1) && place(1) < place(0));
    }

    #[test]
    fn statements_hold_once_their_parts_do() {
        let mut statements = Statements::default();
        let (a, b) = (statements.add(1), statements.add(1));
        let yes = statements.constant(true);
        let no = statements.constant(false);
        let both = statements.all(&[yes, a]);
        let either = statements.any(&[no, b]);
        let none = statements.all(&[]);
        // One needs itself, the other a statement that holds.
        statements.join(both, a);
        statements.join(none, b);
        let expected = [false, true, true, false, false, true, true];
        assert_eq!(statements.solve(), expected);
        assert_eq!(either, 5);
    }
}
