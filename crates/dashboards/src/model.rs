//! Dashboards as data: rows of panels, each with queries that say what they show.

/// A dashboard of Grafana.
#[derive(Debug, Clone)]
pub struct Dashboard {
    /// Name of its file, without the ending; part of its permanent address in Grafana.
    pub name: &'static str,
    pub title: &'static str,
    pub description: &'static str,
    pub variables: &'static [Variable],
    pub rows: Vec<Row>,
}

/// Panels below a heading.
#[derive(Debug, Clone)]
pub struct Row {
    pub title: &'static str,
    pub panels: Vec<Panel>,
}

pub fn row<const N: usize>(title: &'static str, panels: [Panel; N]) -> Row {
    Row { title, panels: panels.into() }
}

/// One diagram, number or table.
#[derive(Debug, Clone)]
pub struct Panel {
    pub title: &'static str,
    /// Shown when the pointer is over the title.
    pub description: &'static str,
    pub kind: PanelKind,
    pub unit: Unit,
    pub targets: Vec<Target>,
}

/// A query and the legend of its series.
#[derive(Debug, Clone)]
pub struct Target {
    pub query: String,
    pub legend: &'static str,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PanelKind {
    TimeSeries,
    Stat,
    Table,
}

/// Unit of the values of a panel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unit {
    Number,
    Share,
    Requests,
    PerSecond,
    Seconds,
    Milliseconds,
    Days,
    Bytes,
    BytesPerSecond,
}

impl Unit {
    /// Grafana's identifier.
    pub fn id(self) -> &'static str {
        match self {
            Unit::Number => "short",
            Unit::Share => "percentunit",
            Unit::Requests => "reqps",
            Unit::PerSecond => "ops",
            Unit::Seconds => "s",
            Unit::Milliseconds => "ms",
            Unit::Days => "d",
            Unit::Bytes => "bytes",
            Unit::BytesPerSecond => "Bps",
        }
    }
}

/// Choices at the top of a dashboard.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Variable {
    Datasource,
    Mesh,
    Zone,
    Service,
    Destination,
    Proxy,
    ControlPlane,
}

impl Panel {
    fn new(
        kind: PanelKind,
        title: &'static str,
        description: &'static str,
        unit: Unit,
        targets: Vec<Target>,
    ) -> Panel {
        Panel { title, description, kind, unit, targets }
    }
}

pub fn target(query: impl Into<String>, legend: &'static str) -> Target {
    Target { query: query.into(), legend }
}

/// A diagram over time.
pub fn graph<const N: usize>(
    title: &'static str,
    unit: Unit,
    description: &'static str,
    targets: [Target; N],
) -> Panel {
    Panel::new(PanelKind::TimeSeries, title, description, unit, targets.into())
}

/// Numbers as they are now.
pub fn stat(title: &'static str, unit: Unit, description: &'static str, shown: Target) -> Panel {
    Panel::new(PanelKind::Stat, title, description, unit, vec![shown])
}

/// A table of the values now, a row for each series.
pub fn table(title: &'static str, unit: Unit, description: &'static str, shown: Target) -> Panel {
    Panel::new(PanelKind::Table, title, description, unit, vec![shown])
}
