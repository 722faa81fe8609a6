//! A service of several zones, as users write it.

/// The MeshMultiZoneService `all` at port 80, and the MeshService `backend` of this zone, which belongs to it.
pub const ALL: &str = r#"
type: MeshMultiZoneService
mesh: default
name: all
spec:
  selector: { meshService: { matchLabels: { app: backend } } }
  ports: [{ port: 80 }]
---
type: MeshService
mesh: default
name: backend
labels: { app: backend }
spec:
  selector: { dataplaneTags: { kuma.io/service: backend } }
  ports: [{ port: 80, targetPort: 8080 }]
status:
  tls: { status: Ready }
"#;

/// The MeshService `backend` of another zone, which belongs to [`ALL`] too, and the ingress of that zone.
pub fn remote(zone: &str, ingress: &str) -> String {
    format!(
        "type: MeshService\nmesh: default\nname: backend-{zone}\n\
         labels: {{ app: backend, kuma.io/zone: {zone}, kuma.io/origin: global, kuma.io/display-name: backend }}\n\
         spec: {{ state: Available, ports: [{{ port: 80, targetPort: 80 }}] }}\n---\n\
         type: ZoneIngress\nname: {zone}\nzone: {zone}\n\
         networking: {{ address: 10.1.0.1, port: 1, advertisedAddress: {ingress}, advertisedPort: 1 }}"
    )
}
