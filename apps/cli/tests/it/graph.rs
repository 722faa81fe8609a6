//! `graph`: who may call whom, drawn.

use serde_json::{Value, json};
use testkit::spec;

use crate::{
    control_plane::ZoneControlPlane,
    observed_mesh::{permission, proxy, service},
    program::Program,
    server::Server,
};

const PATH: &str = "/meshes/default/_graph";

fn named(names: &[&str], action: &'static str) -> Vec<(Value, &'static str)> {
    names.iter().map(|name| (spec::tagged(name), action)).collect()
}

/// `web`, `batch` and `kv` may call `kv`, anyone may call `docs`, and anyone but five clients may call `shop`. Only
/// `batch` may call `web`; it is no service.
fn small() -> ZoneControlPlane {
    let control_plane = ZoneControlPlane::start();
    control_plane.secure(json!({}));
    let services = ["kv", "web", "docs", "shop"];
    control_plane.put(services.map(|name| proxy(&format!("{name}-1"), name)));
    control_plane.put(services.into_iter().enumerate().map(|(number, name)| service(name, number + 1)));
    control_plane.put([proxy("batch-1", "batch"), proxy("batch-2", "batch")]);
    let denied = ["a", "b", "c", "d", "e"];
    control_plane.put(denied.map(|name| proxy(&format!("{name}-1"), name)));
    let all = [(spec::all(), "Allow")];
    let all_but_some = [&all[..], &named(&denied, "Deny")].concat();
    control_plane.put([
        permission("kv", spec::tagged("kv"), &named(&["web", "batch", "kv"], "Allow")),
        permission("web", spec::tagged("web"), &named(&["batch"], "Allow")),
        permission("docs", spec::tagged("docs"), &all),
        permission("shop", spec::tagged("shop"), &all_but_some),
    ]);
    control_plane
}

#[test]
fn a_graph_is_drawn_in_every_form() {
    let control_plane = small();
    let program = Program::at(&control_plane.url);
    let drawn = |form: &str| program.run(&["graph", "-o", form]).ok().out;
    assert_eq!(
        drawn("dot"),
        r#"digraph mesh {
  rankdir=LR;
  node [shape=box];
  n1 [label="kv", tooltip="kri_msvc_default_east__kv_"];
  n3 [label="web", tooltip="kri_msvc_default_east__web_"];
  n4 [label="a", tooltip="spiffe://default/a", shape=ellipse];
  n5 [label="b", tooltip="spiffe://default/b", shape=ellipse];
  n6 [label="batch", tooltip="spiffe://default/batch", shape=ellipse];
  n7 [label="c", tooltip="spiffe://default/c", shape=ellipse];
  n8 [label="d", tooltip="spiffe://default/d", shape=ellipse];
  n9 [label="e", tooltip="spiffe://default/e", shape=ellipse];
  subgraph cluster_anyone {
    label="anyone may call";
    style=dashed;
    n0 [label="docs", tooltip="kri_msvc_default_east__docs_"];
    n2 [label="shop\nanyone except a, b, c and 2 more", tooltip="kri_msvc_default_east__shop_"];
  }
  n1 -> n1;
  n3 -> n1;
  n6 -> n1;
  n6 -> n3;
}
"#
    );
    assert_eq!(
        drawn("mermaid"),
        r#"graph LR
  n1["kv"]
  n3["web"]
  n4(["a"])
  n5(["b"])
  n6(["batch"])
  n7(["c"])
  n8(["d"])
  n9(["e"])
  subgraph anyone["anyone may call"]
    n0["docs"]
    n2["shop<br/>anyone except a, b, c and 2 more"]
  end
  n1 --> n1
  n3 --> n1
  n6 --> n1
  n6 --> n3
"#
    );
    let json: Value = serde_json::from_str(&drawn("json")).unwrap();
    assert_eq!(json, control_plane.get(PATH), "as the REST API says it");
    assert_eq!(program.run(&["graph"]).ok().out, drawn("dot"));
}

#[test]
fn clients_stand_left_of_what_they_call_in_a_picture() {
    let control_plane = small();
    let svg = Program::at(&control_plane.url).run(&["graph", "-o", "svg"]).ok().out;
    assert!(svg.starts_with("<svg xmlns=\"http://www.w3.org/2000/svg\"") && svg.ends_with("</svg>\n"));
    assert_eq!((svg.matches("<g>").count(), svg.matches("marker-end").count()), (10, 4), "{svg}");
    let x_of = |title: &str| {
        let at = svg.split(&format!("<title>{title}</title>")).nth(1).unwrap();
        let x = at.split("x=\"").nth(1).unwrap().split('"').next().unwrap();
        x.parse::<u32>().unwrap()
    };
    let [kv, web] = ["kv", "web"].map(|name| x_of(&format!("kri_msvc_default_east__{name}_")));
    assert!(x_of("spiffe://default/batch") < web && web < kv, "{svg}");
}

#[test]
fn a_part_is_drawn_and_says_what_it_leaves_out() {
    let control_plane = small();
    let program = Program::at(&control_plane.url);
    let drawn = |form: &str| program.run(&["graph", "--service", "kv", "-o", form]).ok().out;
    assert_eq!(
        drawn("dot"),
        r#"digraph mesh {
  rankdir=LR;
  node [shape=box];
  n0 [label="kv", tooltip="kri_msvc_default_east__kv_"];
  n1 [label="web", tooltip="kri_msvc_default_east__web_"];
  n2 [label="batch", tooltip="spiffe://default/batch", shape=ellipse];
  n0 -> n0;
  n1 -> n0;
  n2 -> n0;
  label="anyone may call 2 more services";
}
"#
    );
    assert_eq!(
        drawn("mermaid"),
        r#"graph LR
  n0["kv"]
  n1["web"]
  n2(["batch"])
  n0 --> n0
  n1 --> n0
  n2 --> n0
  note["anyone may call 2 more services"]
"#
    );
    let shop = program.run(&["graph", "--service", "shop", "-o", "mermaid"]).ok().out;
    assert!(shop.contains("note[\"anyone may call 1 more service\"]"), "{shop}");
    let clients = "anyone except spiffe://default/a, spiffe://default/b, spiffe://default/c and 2 more";
    assert!(shop.contains(clients), "by what identifies them, because they are not drawn: {shop}");
}

#[test]
fn names_of_meshes_and_services_arrive_as_they_were_given() {
    let control_plane = ZoneControlPlane::start();
    control_plane.store(json!({ "type": "Mesh", "name": "my shop" }));
    let program = Program::at(&control_plane.url);
    program
        .run(&["graph", "-m", "my shop", "--service", "a&b"])
        .failed(1)
        .says("could not draw mesh my shop")
        .says("the mesh has no service and no client of the name \"a&b\"");
    assert_eq!(control_plane.lines(), ["GET /meshes/my%20shop/_graph?service=a%26b"]);
    program.run(&["graph", "-m", "none"]).failed(1).says("could not draw mesh none");
}

#[test]
fn what_was_cut_is_said() {
    let control_plane = ZoneControlPlane::start();
    control_plane.secure(json!({}));
    let names: Vec<String> = (0..71).map(|number| format!("s{number}")).collect();
    control_plane.put(names.iter().map(|name| proxy(&format!("{name}-1"), name)));
    control_plane.put(names.iter().enumerate().map(|(number, name)| service(name, number + 1)));
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    control_plane.put([permission("each-other", spec::all(), &named(&names, "Allow"))]);
    let ran = Program::at(&control_plane.url).run(&["graph", "-o", "mermaid"]).ok();
    assert!(ran.out.contains("there is more than is drawn"), "{}", ran.out);
    assert!(ran.err.contains("draw a part with --service"), "{}", ran.err);
}

/// A control plane of ours lists both ends of every edge, and allows no such names; a broken or hostile one may.
#[test]
fn names_are_text_and_edges_have_two_ends_whatever_the_answer() {
    let hostile = "\"];evil->n1[label=\"<script>alert('x')</script>&#35;`**_\\N\u{7}\n]]>";
    let edge = |from: &str| json!({ "from": from, "to": hostile });
    let graph = json!({
        "nodes": [{"id": hostile, "name": hostile, "kind": "client", "dataplanes": 1, "access": "none"}],
        "edges": [edge("unknown"), edge(hostile), edge(hostile)], "open": 0, "truncated": false,
    });
    let server = Server::start();
    server.on("GET", PATH, 200, graph);
    let program = Program::of(&server);
    let drawn = |form: &str| program.run(&["graph", "-o", form]).ok().out;
    let dot = drawn("dot");
    let text = r#"\"];evil->n1[label=\"<script>alert('x')</script>&#35;`**_\\N  ]]>"#;
    assert!(dot.contains(&format!("n0 [label=\"{text}\", tooltip=\"{text}\", shape=ellipse];\n")), "{dot}");
    assert!(dot.contains("  n0 -> n0;\n") && dot.lines().count() == 6, "{dot}");
    let mermaid = drawn("mermaid");
    assert_eq!(
        mermaid,
        "graph LR\n  n0([\"#34;];evil-#62;n1[label=#34;#60;script#62;alert('x')#60;/script#62;#38;#35;35;#96;#42;#42;#95;#92;N  \
         ]]#62;\"])\n  n0 --> n0\n"
    );
    let svg = drawn("svg");
    assert!(!svg.contains("<script") && !svg.contains('\u{7}'), "{svg}");
    let text = "&quot;];evil-&gt;n1[label=&quot;&lt;script&gt;alert(&#39;x&#39;)&lt;/script&gt;&amp;#35;`**_\\N  ]]&gt;";
    assert!(svg.contains(&format!("<title>{text}</title>")), "{svg}");
}
