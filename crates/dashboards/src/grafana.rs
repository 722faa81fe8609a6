//! Dashboards as Grafana reads them: JSON of schema version 39, which Grafana 10.4 and later take.

use serde_json::{Value, json};

use crate::{
    model::{Dashboard, Panel, PanelKind, Unit, Variable},
    names::{NameLabel, with_destination, with_name},
    query::{Metric, Scope, sum_by},
};

const SCHEMA: u32 = 39;
/// Grafana's grid has 24 columns.
const COLUMNS: u32 = 24;
const PANEL_WIDTH: u32 = 8;
const PANEL_HEIGHT: u32 = 7;
/// Dashboards with this tag lead to each other.
const TAG: &str = "kuma";

impl Dashboard {
    /// Permanent part of the address in Grafana.
    pub fn uid(&self) -> String {
        format!("kuma-rs-{}", self.name)
    }

    pub fn file_name(&self) -> String {
        format!("{}.json", self.name)
    }

    pub fn json(&self) -> Value {
        json!({
            "uid": self.uid(),
            "title": format!("kuma-rs: {}", self.title),
            "description": self.description,
            "tags": [TAG, "service-mesh"],
            "schemaVersion": SCHEMA,
            "version": 1,
            "editable": true,
            "graphTooltip": 1,
            "time": {"from": "now-1h", "to": "now"},
            "refresh": "30s",
            "timezone": "browser",
            "annotations": {"list": []},
            "links": [{
                "type": "dashboards", "title": "kuma-rs", "tags": [TAG], "asDropdown": true,
                "includeVars": true, "keepTime": true, "targetBlank": false, "icon": "external link",
                "tooltip": "", "url": "",
            }],
            "templating": {"list": self.variables.iter().map(|one| one.json()).collect::<Vec<_>>()},
            "panels": self.panels(),
        })
    }

    /// The text of its file.
    pub fn text(&self) -> String {
        format!("{:#}\n", self.json())
    }

    fn panels(&self) -> Vec<Value> {
        let mut all = Vec::new();
        let mut y = 0;
        for row in &self.rows {
            let id = all.len() + 1;
            all.push(json!({
                "id": id, "type": "row", "title": row.title, "collapsed": false,
                "gridPos": {"h": 1, "w": COLUMNS, "x": 0, "y": y}, "panels": [],
            }));
            y += 1;
            let mut x = 0;
            for panel in &row.panels {
                let width = panel.width();
                if x + width > COLUMNS {
                    x = 0;
                    y += PANEL_HEIGHT;
                }
                let id = all.len() + 1;
                let mut shown = panel.json();
                shown["id"] = json!(id);
                shown["gridPos"] = json!({"h": PANEL_HEIGHT, "w": width, "x": x, "y": y});
                all.push(shown);
                x += width;
            }
            y += PANEL_HEIGHT;
        }
        all
    }
}

fn datasource() -> Value {
    json!({"type": "prometheus", "uid": "${datasource}"})
}

impl Panel {
    fn width(&self) -> u32 {
        if self.kind == PanelKind::Table { COLUMNS } else { PANEL_WIDTH }
    }

    fn json(&self) -> Value {
        let targets = self.targets.iter().zip('A'..).map(|(target, id)| {
            let mut query = json!({
                "refId": id.to_string(), "datasource": datasource(),
                "expr": target.query, "legendFormat": target.legend,
            });
            if self.kind != PanelKind::TimeSeries {
                query["instant"] = json!(true);
            }
            if self.kind == PanelKind::Table {
                query["format"] = json!("table");
            }
            query
        });
        let mut defaults = json!({"unit": self.unit.id()});
        // What may have passed is negative.
        if !matches!(self.unit, Unit::Days | Unit::Seconds) {
            defaults["min"] = json!(0);
        }
        if self.unit == Unit::Share {
            defaults["max"] = json!(1);
        }
        let mut panel = json!({
            "type": self.kind.id(), "title": self.title, "description": self.description,
            "datasource": datasource(),
            "fieldConfig": {"defaults": defaults, "overrides": []},
            "options": self.kind.options(),
            "targets": targets.collect::<Vec<_>>(),
        });
        if self.kind == PanelKind::Table {
            panel["transformations"] =
                json!([{"id": "organize", "options": {"excludeByName": {"Time": true}}}]);
        }
        panel
    }
}

impl PanelKind {
    fn id(self) -> &'static str {
        match self {
            PanelKind::TimeSeries => "timeseries",
            PanelKind::Stat => "stat",
            PanelKind::Table => "table",
        }
    }

    fn options(self) -> Value {
        match self {
            PanelKind::TimeSeries => json!({
                "legend": {"displayMode": "list", "placement": "bottom", "showLegend": true},
                "tooltip": {"mode": "multi", "sort": "desc"},
            }),
            PanelKind::Stat => json!({
                "reduceOptions": {"calcs": ["lastNotNull"], "fields": "", "values": false},
                "colorMode": "value", "graphMode": "area", "textMode": "auto",
            }),
            PanelKind::Table => json!({"showHeader": true, "cellHeight": "sm"}),
        }
    }
}

impl Variable {
    pub fn name(self) -> &'static str {
        match self {
            Variable::Datasource => "datasource",
            Variable::Mesh => "mesh",
            Variable::Zone => "zone",
            Variable::Service => "service",
            Variable::Destination => "destination",
            Variable::Proxy => "proxy",
            Variable::ControlPlane => "instance",
        }
    }

    fn label(self) -> &'static str {
        match self {
            Variable::Datasource => "Data source",
            Variable::Mesh => "Mesh",
            Variable::Zone => "Zone",
            Variable::Service => "Service",
            Variable::Destination => "Destination",
            Variable::Proxy => "Proxy",
            Variable::ControlPlane => "Control plane",
        }
    }

    /// The query that fills it, of those that Grafana knows.
    fn query(self) -> String {
        match self {
            Variable::Datasource => "prometheus".to_owned(),
            Variable::Mesh => "label_values(envoy_server_live, mesh)".to_owned(),
            Variable::Zone => "label_values(envoy_server_live, zone)".to_owned(),
            Variable::Service => {
                format!("label_values({}, service)", Metric::of("envoy_server_live", Scope::Mesh).series())
            }
            Variable::Proxy => {
                let live = "envoy_server_live{mesh=~\"$mesh\", zone=~\"$zone\", service=~\"$service\"}";
                format!("label_values({live}, dataplane)")
            }
            Variable::Destination => {
                let outbound = NameLabel::Cluster;
                let called = Metric::of("envoy_cluster_upstream_cx_total", Scope::Service).outbound(outbound);
                let names = sum_by(outbound.as_str(), &called.series());
                format!("query_result({})", sum_by("name", &with_name(&with_destination(&names, outbound))))
            }
            Variable::ControlPlane => "label_values(cp_info, instance)".to_owned(),
        }
    }

    fn json(self) -> Value {
        let query = self.query();
        if self == Variable::Datasource {
            return json!({"name": self.name(), "type": "datasource", "query": query, "label": self.label()});
        }
        let mut variable = json!({
            "name": self.name(), "type": "query", "label": self.label(), "datasource": datasource(),
            "query": query, "definition": query,
            "includeAll": true, "multi": true, "allValue": ".*",
            "current": {"text": "All", "value": "$__all"},
            // With the time range, so that what is gone is not offered; by name.
            "refresh": 2, "sort": 1,
        });
        if self == Variable::Destination {
            variable["regex"] = json!("/name=\"([^\"]*)\"/");
        }
        variable
    }
}
