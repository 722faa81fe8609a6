//! Protection of a builtin gateway: anyone may call it, not only other proxies.

use serde_json::{Value, json};

use super::Gateway;

const FIXED_HEAP: &str = "envoy.resource_monitors.fixed_heap";
const LISTENERS: &str = "gateway.listeners";

impl Gateway {
    /// Limits of listeners are discovered, so that they can change while the gateway runs.
    pub(super) fn runtime_layer(&self) -> Value {
        json!({
            "name": LISTENERS,
            "rtdsLayer": {"name": LISTENERS, "rtdsConfig": {"ads": {}, "resourceApiVersion": "V3"}}
        })
    }

    pub(super) fn overload_manager(&self) -> Value {
        let mut monitors = vec![json!({
            "name": "envoy.resource_monitors.global_downstream_max_connections",
            "typedConfig": {
                "@type": "type.googleapis.com/envoy.extensions.resource_monitors.downstream_connections.v3.\
                          DownstreamConnectionsConfig",
                "maxActiveDownstreamConnections": self.max_connections.to_string()
            }
        })];
        if self.max_heap_bytes == 0 {
            return json!({"refreshInterval": "0.250s", "resourceMonitors": monitors});
        }
        monitors.push(json!({
            "name": FIXED_HEAP,
            "typedConfig": {
                "@type": "type.googleapis.com/envoy.extensions.resource_monitors.fixed_heap.v3.FixedHeapConfig",
                "maxHeapSizeBytes": self.max_heap_bytes.to_string()
            }
        }));
        let when_heap_is_at = |threshold: f64, action: &str| {
            json!({
                "name": format!("envoy.overload_actions.{action}"),
                "triggers": [{"name": FIXED_HEAP, "threshold": {"value": threshold}}]
            })
        };
        json!({
            "refreshInterval": "0.250s",
            "resourceMonitors": monitors,
            "actions": [
                when_heap_is_at(0.95, "shrink_heap"),
                when_heap_is_at(0.98, "stop_accepting_requests"),
            ]
        })
    }
}
