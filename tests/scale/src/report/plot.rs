//! The plot: how many times the floor each workload costs, as bars on a logarithmic scale.

use std::fmt::Write as _;

use super::number;
use crate::bench::row::Row;

const LABELS: f64 = 330.0;
const WIDTH: f64 = 900.0;
const BAR: f64 = 18.0;
const TOP: f64 = 40.0;
/// The scale goes from the floor to so many times it, or further if a row needs it.
const AT_LEAST: f64 = 10.0;

pub fn svg(rows: &[Row]) -> Result<String, std::fmt::Error> {
    let bars: Vec<(&Row, f64)> = rows.iter().filter_map(|row| Some((row, row.times_floor()?))).collect();
    let most = bars.iter().map(|(_, times)| *times).fold(AT_LEAST, f64::max);
    let x = |times: f64| LABELS + (times.max(1.0).ln() / most.ln()) * (WIDTH - LABELS - 60.0);
    let height = TOP + BAR * bars.len() as f64 + 20.0;
    let mut svg = String::new();
    writeln!(
        svg,
        r#"<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" font-family="sans-serif" font-size="11">"#
    )?;
    writeln!(svg, r#"<rect width="{WIDTH}" height="{height}" fill="white"/>"#)?;
    writeln!(
        svg,
        r#"<text x="8" y="16" font-size="13">CPU of the control plane, × floor (logarithmic)</text>"#
    )?;
    for line in [1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0].into_iter().filter(|line| *line <= most) {
        let at = x(line);
        let bottom = height - 20.0;
        // The goal of most workloads is twice the floor.
        let colour = if line == 2.0 { "#2a7" } else { "#ccc" };
        writeln!(svg, r#"<line x1="{at:.1}" x2="{at:.1}" y1="{TOP}" y2="{bottom}" stroke="{colour}"/>"#)?;
        writeln!(svg, r#"<text x="{at:.1}" y="{:.1}" text-anchor="middle">{line}</text>"#, TOP - 6.0)?;
    }
    for (index, (row, times)) in bars.iter().enumerate() {
        let y = TOP + BAR * index as f64;
        let colour = if *times <= 2.0 { "#2a7" } else { "#c63" };
        let text = y + 13.0;
        let from = x(1.0);
        let to = x(*times);
        writeln!(svg, r#"<text x="8" y="{text:.1}">{} {} {}</text>"#, row.cell, row.workload, row.what)?;
        let width = (to - from).max(1.0);
        writeln!(
            svg,
            r#"<rect x="{from:.1}" y="{:.1}" width="{width:.1}" height="{:.1}" fill="{colour}"/>"#,
            y + 3.0,
            BAR - 5.0
        )?;
        writeln!(svg, r#"<text x="{:.1}" y="{text:.1}">{}</text>"#, to + 4.0, number(*times))?;
    }
    writeln!(svg, "</svg>")?;
    Ok(svg)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::row::Floor;

    #[test]
    fn a_row_with_a_floor_is_a_bar() {
        let floor = Some(Floor { cpu_ms: 10.0, ..Floor::default() });
        let bar = Row { cell: "9x9".to_owned(), cpu_ms: 30.0, floor, ..Row::default() };
        let svg = svg(&[bar, Row::default()]).unwrap();
        assert_eq!(svg.matches("fill=\"#c63\"").count(), 1);
        assert!(svg.contains(">3.00</text>"), "{svg}");
    }
}
