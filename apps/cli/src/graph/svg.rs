//! The graph as a picture, laid out here: nothing else has to be installed, and nothing is fetched by the viewer.

use super::{Drawing, Node, layout::layered};

const CHARACTER: usize = 8;
const LINE: usize = 18;
const PADDING: usize = 10;
const GAP_X: usize = 90;
const GAP_Y: usize = 16;
const MARGIN: usize = 20;
/// Longer names are cut; the whole identifier is in the title of the box.
const LONGEST: usize = 48;
/// Number of boxes side by side among those that anyone may call.
const COLUMNS: usize = 4;

const STYLE: &str = "text{font:13px monospace;fill:#222}rect{fill:#fff;stroke:#456;rx:4}\
    .client{fill:#eef;rx:14}.open{fill:#efe}.anyone{fill:none;stroke:#7a7;stroke-dasharray:5}\
    path{fill:none;stroke:#678}";

/// A box in the picture.
#[derive(Debug, Clone, Copy, Default)]
struct Frame {
    x: usize,
    y: usize,
    width: usize,
    height: usize,
}

pub(super) fn render(drawing: &Drawing) -> String {
    let wanted: Vec<bool> = drawing.nodes.iter().map(|node| !node.callable_by_all).collect();
    let places = layered(drawing.nodes.len(), &drawing.edges, &wanted);
    let mut frames: Vec<Frame> = drawing.nodes.iter().map(size).collect();
    let (mut width, mut height) = place_layers(&places, &mut frames);
    let anyone = place_open(drawing, &mut frames, &mut width, &mut height);
    let mut out = String::new();
    for &(from, to) in &drawing.edges {
        if let (Some(from), Some(to)) = (frames.get(from), frames.get(to)) {
            out.push_str(&arrow(from, to));
        }
    }
    if let Some(Frame { x, y, width, height }) = anyone {
        out.push_str(&format!(
            "<rect class=\"anyone\" x=\"{x}\" y=\"{y}\" width=\"{width}\" height=\"{height}\"/>\n"
        ));
        out.push_str(&format!("<text x=\"{}\" y=\"{}\">anyone may call</text>\n", x + PADDING, y + LINE));
    }
    for (node, frame) in drawing.nodes.iter().zip(&frames) {
        out.push_str(&boxed(node, frame));
    }
    if let Some(note) = drawing.note() {
        height += LINE + GAP_Y;
        width = width.max(note.chars().count() * CHARACTER + 2 * MARGIN);
        out.push_str(&format!("<text x=\"{MARGIN}\" y=\"{}\">{}</text>\n", height - GAP_Y, escaped(&note)));
    }
    let width = width.max(2 * MARGIN);
    let height = height.max(2 * MARGIN);
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width}\" height=\"{height}\" viewBox=\"0 0 {width} {height}\">\n\
         <style>{STYLE}</style>\n<defs><marker id=\"end\" viewBox=\"0 0 8 8\" refX=\"8\" refY=\"4\" markerWidth=\"8\" \
         markerHeight=\"8\" orient=\"auto\"><path d=\"M0,0L8,4L0,8\"/></marker></defs>\n{out}</svg>\n"
    )
}

fn size(node: &Node) -> Frame {
    let longest = node.lines.iter().map(|line| line.chars().count().min(LONGEST)).max().unwrap_or(0);
    let width = longest * CHARACTER + 2 * PADDING;
    let height = node.lines.len() * LINE + PADDING;
    Frame { x: 0, y: 0, width, height }
}

/// Puts boxes into columns by layer; gives the size of what is drawn so far.
fn place_layers(places: &[Option<(usize, usize)>], frames: &mut [Frame]) -> (usize, usize) {
    let mut placed: Vec<(usize, usize, usize)> =
        places.iter().enumerate().filter_map(|(at, place)| place.map(|(x, y)| (x, y, at))).collect();
    placed.sort_unstable();
    let mut x = MARGIN;
    let mut height = MARGIN;
    for layer in placed.chunk_by(|a, b| a.0 == b.0) {
        let mut y = MARGIN;
        let mut widest = 0;
        for &(_, _, at) in layer {
            let frame = &mut frames[at];
            (frame.x, frame.y) = (x, y);
            y += frame.height + GAP_Y;
            widest = widest.max(frame.width);
        }
        height = height.max(y);
        x += widest + GAP_X;
    }
    let width = if placed.is_empty() { MARGIN } else { x - GAP_X + MARGIN };
    (width, height)
}

/// Puts what anyone may call below the rest, a few side by side; gives the frame around it.
fn place_open(
    drawing: &Drawing,
    frames: &mut [Frame],
    width: &mut usize,
    height: &mut usize,
) -> Option<Frame> {
    let open: Vec<usize> = (0..frames.len()).filter(|&at| drawing.nodes[at].callable_by_all).collect();
    let widest = open.iter().map(|&at| frames[at].width).max()?;
    let top = *height;
    let mut y = top + LINE + PADDING;
    for row in open.chunks(COLUMNS) {
        for (column, &at) in row.iter().enumerate() {
            (frames[at].x, frames[at].y) = (MARGIN + PADDING + column * (widest + GAP_Y), y);
        }
        y += row.iter().map(|&at| frames[at].height).max().unwrap_or(0) + GAP_Y;
    }
    let columns = open.len().min(COLUMNS);
    let frame = Frame {
        x: MARGIN,
        y: top,
        width: columns * (widest + GAP_Y) - GAP_Y + 2 * PADDING,
        height: y - GAP_Y + PADDING - top,
    };
    *width = (*width).max(frame.x + frame.width + MARGIN);
    *height = y + PADDING;
    Some(frame)
}

fn arrow(from: &Frame, to: &Frame) -> String {
    let middle = |frame: &Frame| frame.y + frame.height / 2;
    let start = from.x + from.width;
    let end = to.x;
    let path = if (from.x, from.y) == (to.x, to.y) {
        // A service that may call itself.
        format!("M{start},{y}c30,-24 30,24 0,8", y = middle(from))
    } else {
        let reach = (start.abs_diff(end) / 2).max(GAP_X / 2);
        let before = format!("{}", i64::try_from(end).unwrap_or(0) - i64::try_from(reach).unwrap_or(0));
        format!("M{start},{}C{},{0} {before},{} {end},{2}", middle(from), start + reach, middle(to))
    };
    format!("<path d=\"{path}\" marker-end=\"url(#end)\"/>\n")
}

fn boxed(node: &Node, Frame { x, y, width, height }: &Frame) -> String {
    let class = match (node.client, node.callable_by_all) {
        (true, _) => " class=\"client\"",
        (_, true) => " class=\"open\"",
        _ => "",
    };
    let mut out = format!("<g><title>{}</title>", escaped(&node.id));
    out.push_str(&format!("<rect{class} x=\"{x}\" y=\"{y}\" width=\"{width}\" height=\"{height}\"/>"));
    for (at, line) in node.lines.iter().enumerate() {
        let y = y + (at + 1) * LINE;
        out.push_str(&format!("<text x=\"{}\" y=\"{y}\">{}</text>", x + PADDING, escaped(&cut(line))));
    }
    out.push_str("</g>\n");
    out
}

fn cut(line: &str) -> String {
    if line.chars().count() <= LONGEST {
        return line.to_owned();
    }
    let start: String = line.chars().take(LONGEST - 1).collect();
    format!("{start}…")
}

/// Text in XML, which cannot hold most control characters at all.
fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for letter in text.chars() {
        match letter {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&#39;"),
            letter if letter.is_control() || matches!(letter, '\u{fffe}' | '\u{ffff}') => out.push(' '),
            letter => out.push(letter),
        }
    }
    out
}
