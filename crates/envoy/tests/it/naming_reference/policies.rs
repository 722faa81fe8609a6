//! The policies of the proxy that the tables are made from.

/// Policies that make proxies send to collectors.
pub const TELEMETRY: &str = "
type: MeshAccessLog
mesh: default
name: logs
spec:
  to: [{ targetRef: { kind: Mesh }, default: { backends: [{ type: OpenTelemetry, openTelemetry: { endpoint: 127.0.0.1:4317 } }] } }]
---
type: MeshTrace
mesh: default
name: spans
spec: { default: { backends: [{ type: Zipkin, zipkin: { url: 'http://127.0.0.1:9411/api/v2/spans' } }] } }
";

pub const METRICS: &str = "
type: MeshMetric
mesh: default
name: all
spec:
  default:
    backends:
      - { type: Prometheus, prometheus: {} }
      - { type: OpenTelemetry, openTelemetry: { endpoint: 'otel.example:4317' } }
";

pub const INBOUND_POLICIES: &str = "
type: MeshFaultInjection
mesh: default
name: chaos
labels: { kuma.io/zone: east }
spec:
  targetRef: { kind: Dataplane, sectionName: http }
  rules: [{ default: { http: [{ abort: { httpStatus: 500, percentage: 1 } }] } }]
---
type: MeshRateLimit
mesh: default
name: enough
spec:
  targetRef: { kind: Dataplane, sectionName: http }
  rules: [{ default: { local: { http: { requestRate: { num: 100, interval: 1s } } } } }]
---
type: MeshRateLimit
mesh: default
name: few
spec:
  targetRef: { kind: Dataplane, sectionName: '9000' }
  rules: [{ default: { local: { tcp: { connectionRate: { num: 100, interval: 1s } } } } }]
";

pub const LET_OUT: &str = "
type: MeshPassthrough
mesh: default
name: out
spec:
  default:
    passthroughMode: Matched
    appendMatch:
      - { type: Domain, value: api.example.com, port: 443, protocol: tls }
      - { type: IP, value: 192.0.2.1, port: 5432, protocol: tcp }
      - { type: Domain, value: api.example.com, port: 80, protocol: http }
";
