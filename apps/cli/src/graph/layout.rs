//! Places of boxes: clients left of what they call, in layers.
//!
//! Arrows that lead back in a cycle are turned around for this purpose only. A box stands one layer right of the
//! rightmost of those that call it; in a layer, boxes stand near what they are connected with.

/// For each node the layer and the place in it; `None` for nodes that are not laid out.
pub(super) fn layered(
    nodes: usize,
    edges: &[(usize, usize)],
    wanted: &[bool],
) -> Vec<Option<(usize, usize)>> {
    let is_wanted = |at: usize| wanted.get(at).copied().unwrap_or(false);
    let usable = |&&(from, to): &&(usize, usize)| from != to && is_wanted(from) && is_wanted(to);
    let edges: Vec<(usize, usize)> = edges.iter().filter(usable).copied().collect();
    let edges = without_cycles(nodes, &edges);
    let layer = layers(nodes, &edges);
    let count = layer.iter().max().map_or(0, |last| last + 1);
    let mut rows: Vec<Vec<usize>> = vec![Vec::new(); count];
    for at in (0..nodes).filter(|&at| is_wanted(at)) {
        if let Some(row) = layer.get(at).and_then(|&layer| rows.get_mut(layer)) {
            row.push(at);
        }
    }
    for _ in 0..4 {
        arrange(nodes, &edges, &mut rows);
    }
    let mut places = vec![None; nodes];
    for (layer, row) in rows.iter().enumerate() {
        for (place, &at) in row.iter().enumerate() {
            places[at] = Some((layer, place));
        }
    }
    places
}

/// The edges with those turned around that lead back to where a walk along the others came from.
fn without_cycles(nodes: usize, edges: &[(usize, usize)]) -> Vec<(usize, usize)> {
    let mut out: Vec<Vec<usize>> = vec![Vec::new(); nodes];
    edges.iter().for_each(|&(from, to)| out[from].push(to));
    let mut state = vec![VisitState::Unseen; nodes];
    let mut forward = Vec::with_capacity(edges.len());
    for start in 0..nodes {
        if state[start] != VisitState::Unseen {
            continue;
        }
        state[start] = VisitState::Open;
        // A walk without recursion: a long chain of services must not use up the stack.
        let mut walk = vec![(start, 0)];
        while let Some((at, next)) = walk.pop() {
            let Some(&to) = out[at].get(next) else {
                state[at] = VisitState::Done;
                continue;
            };
            walk.push((at, next + 1));
            forward.push(if state[to] == VisitState::Open { (to, at) } else { (at, to) });
            if state[to] == VisitState::Unseen {
                state[to] = VisitState::Open;
                walk.push((to, 0));
            }
        }
    }
    forward
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum VisitState {
    Unseen,
    Open,
    Done,
}

/// The longest way to each node.
fn layers(nodes: usize, edges: &[(usize, usize)]) -> Vec<usize> {
    let mut out: Vec<Vec<usize>> = vec![Vec::new(); nodes];
    let mut waiting = vec![0_usize; nodes];
    for &(from, to) in edges {
        out[from].push(to);
        waiting[to] += 1;
    }
    let mut layer = vec![0; nodes];
    let mut free: Vec<usize> = (0..nodes).filter(|&at| waiting[at] == 0).collect();
    while let Some(at) = free.pop() {
        for &to in &out[at] {
            layer[to] = layer[to].max(layer[at] + 1);
            waiting[to] -= 1;
            if waiting[to] == 0 {
                free.push(to);
            }
        }
    }
    layer
}

/// Puts each node near the middle of those it is connected with.
fn arrange(nodes: usize, edges: &[(usize, usize)], rows: &mut [Vec<usize>]) {
    let mut place = vec![0_usize; nodes];
    for row in rows.iter() {
        row.iter().enumerate().for_each(|(i, &at)| place[at] = i);
    }
    let mut near: Vec<(usize, usize)> = vec![(0, 0); nodes];
    for &(from, to) in edges {
        for (at, other) in [(from, to), (to, from)] {
            near[at] = (near[at].0 + place[other], near[at].1 + 1);
        }
    }
    for row in rows {
        // Thousandths, so that places between two others can be compared.
        row.sort_by_key(|&at| match near[at] {
            (_, 0) => (place[at] * 1000, place[at]),
            (sum, count) => (sum * 1000 / count, place[at]),
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn layer_of(places: &[Option<(usize, usize)>]) -> Vec<Option<usize>> {
        places.iter().map(|place| place.map(|(layer, _)| layer)).collect()
    }

    #[test]
    fn clients_stand_left_of_what_they_call_and_cycles_end() {
        let wanted = [true, true, true, true, false];
        let places = layered(5, &[(0, 1), (1, 2), (0, 2), (2, 0), (3, 3), (4, 0)], &wanted);
        assert_eq!(layer_of(&places), [Some(0), Some(1), Some(2), Some(0), None]);
    }

    #[test]
    fn no_two_boxes_stand_in_one_place_and_long_chains_are_laid_out() {
        let nodes = 20_000;
        let chain: Vec<(usize, usize)> = (1..nodes).map(|at| (at - 1, at)).collect();
        let places = layered(nodes, &chain, &vec![true; nodes]);
        assert_eq!(places[nodes - 1], Some((nodes - 1, 0)));
        let star: Vec<(usize, usize)> = (1..100).map(|at| (at, 0)).collect();
        let places = layered(100, &star, &[true; 100]);
        let distinct: std::collections::BTreeSet<_> = places.iter().flatten().collect();
        assert_eq!(distinct.len(), 100);
    }
}
