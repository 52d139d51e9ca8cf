"use strict";
// Draws the report from the JSON in the page. Text of a model reaches the page as text nodes and attributes alone:
// nothing here parses markup.
(() => {
  const { plan, report, headline, pictures, licenses } = JSON.parse(document.getElementById("data").textContent);
  const main = document.getElementById("main");
  const PALETTE = ["#e69f00", "#56b4e9", "#009e73", "#d55e00", "#0072b2", "#cc79a7", "#b8a800", "#8c8c8c"];
  const BOUND = { dram: "#d55e00", compute: "#009e73", "on-chip": "#0072b2", host: "#8c8c8c" };
  // Above so many nodes laying a graph out would block the page.
  const NODES_DRAWN = 1500;
  const LONGEST_SHOWN = 40;

  const groups = plan.segments.flatMap((segment) => segment.groups.map((group) => ({ ...group, segment: segment.id })));
  const groupOf = new Map(groups.map((group) => [group.id, group]));
  const hosts = plan.segments.filter((segment) => segment.kind === "host");
  const number = new Map([...groups, ...hosts].map((place, position) => [place.id, position]));
  const priced = new Map((report ? report.groups : []).map((group) => [group.id, group]));
  const ops = report ? report.graph : [];
  const tensorOf = new Map(ops.map((op) => [op.output, op]));
  const totalCycles = d3.sum(groups, (group) => group.cycles);
  const clockHz = plan.totals.latency_s > 0 ? totalCycles / plan.totals.latency_s : 1;

  // ---- words and numbers ----

  const count = (value) => Math.round(value).toLocaleString("en-US");
  const plural = (value, noun) => `${count(value)} ${noun}${value === 1 ? "" : "s"}`;
  const decimals = (value) => (Math.abs(value) >= 100 ? value.toFixed(0) : value.toPrecision(3));
  const percent = (part, whole) => (whole ? `${((100 * part) / whole).toFixed(1)} %` : "–");
  function scaled(value, units, step) {
    let at = 0;
    while (at < units.length - 1 && Math.abs(value) >= step) {
      value /= step;
      at += 1;
    }
    return `${decimals(value)} ${units[at]}`;
  }
  const bytes = (value) => (value < 1024 ? `${value} B` : scaled(value, ["B", "KiB", "MiB", "GiB", "TiB"], 1024));
  const seconds = (value) => (value === 0 ? "0 s" : scaled(value * 1e9, ["ns", "µs", "ms", "s"], 1000));
  const joules = (value) => (value === 0 ? "0 J" : scaled(value * 1e12, ["pJ", "nJ", "µJ", "mJ", "J"], 1000));
  const rate = (value) => scaled(value, ["/s", "k/s", "M/s", "G/s", "T/s", "P/s"], 1000);
  const cyclesAndTime = (cycles) => `${count(cycles)} cycles (${seconds(cycles / clockHz)})`;
  const shape = (axes, extents) => axes.map((axis, place) => `${axis} ${extents[place]}`).join(" × ") || "scalar";
  const nodesOf = (names) => (names.length < 3 ? names.join(", ") : `${names[0]} … ${names[names.length - 1]} (${names.length})`);
  const short = (text, limit) =>
    text.length <= limit ? text : `${text.slice(0, Math.ceil(limit / 2) - 1)}…${text.slice(-Math.floor(limit / 2))}`;
  const colourOf = (id) => (number.has(id) ? PALETTE[number.get(id) % PALETTE.length] : "#8c8c8c");

  // ---- elements ----

  function put(parent, tag, attributes = {}, ...children) {
    const element = document.createElement(tag);
    for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
    element.append(...children.map(String));
    parent.append(element);
    return element;
  }
  const paragraph = (parent, text, kind = "") => put(parent, "p", kind ? { class: kind } : {}, text);
  function section(id, title, note) {
    const made = put(main, "section", { id, "aria-labelledby": `${id}-title` });
    put(made, "h2", { id: `${id}-title` }, title);
    if (note) paragraph(made, note, "note");
    return made;
  }
  let figures = 0;
  function figure(parent, caption, drawing) {
    figures += 1;
    const made = put(parent, "figure", { "aria-labelledby": `figure-${figures}` });
    put(made, "figcaption", { id: `figure-${figures}` }, caption);
    // A plot with a legend comes as a figure of its own; its swatches have their words beside them.
    if (drawing.tagName === "FIGURE") drawing.setAttribute("role", "presentation");
    drawing.querySelectorAll(":scope > div svg").forEach((swatch) => swatch.setAttribute("aria-hidden", "true"));
    made.append(drawing);
    return made;
  }

  // A table whose columns sort. A column: label, of(row), optional shown(value), num, link(row) -> group id.
  function table(parent, label, columns, rows, rowId = () => null) {
    const box = put(parent, "div", { class: "scroll", tabindex: "0", role: "region", "aria-label": label });
    const made = put(box, "table", { "aria-label": label });
    const head = put(put(made, "thead"), "tr");
    const body = put(made, "tbody");
    let sorted = { column: null, down: true };
    const heads = columns.map((column) => {
      const cell = put(head, "th", { scope: "col", class: column.num ? "num" : "" });
      put(cell, "button", { type: "button" }, column.label).addEventListener("click", () => {
        sorted = { column, down: sorted.column === column ? !sorted.down : Boolean(column.num) };
        fill();
      });
      return cell;
    });
    function fill() {
      heads.forEach((cell, place) => {
        const active = columns[place] === sorted.column;
        cell.setAttribute("aria-sort", active ? (sorted.down ? "descending" : "ascending") : "none");
      });
      const order = sorted.column ? (sorted.down ? d3.descending : d3.ascending) : null;
      const shown = order ? [...rows].sort((a, b) => order(sorted.column.of(a), sorted.column.of(b))) : rows;
      body.replaceChildren();
      for (const row of shown) {
        const line = put(body, "tr");
        const id = rowId(row);
        if (id) line.dataset.group = id;
        for (const column of columns) {
          const value = column.of(row);
          const text = value === null || value === undefined ? "–" : column.shown ? column.shown(value) : String(value);
          const cell = put(line, "td", column.num ? { class: "num" } : {});
          const target = column.link ? column.link(row) : null;
          if (groupOf.has(target)) groupButton(cell, target, text);
          else cell.append(text);
        }
      }
      mark();
    }
    fill();
    return box;
  }
  function facts(parent, label, pairs) {
    const box = put(parent, "table", { "aria-label": label });
    const body = put(box, "tbody");
    for (const [name, value] of pairs) {
      const line = put(body, "tr");
      put(line, "th", { scope: "row" }, name);
      put(line, "td", {}, value);
    }
  }
  function groupButton(parent, id, text = id) {
    put(parent, "button", { type: "button" }, text).addEventListener("click", () => select(id, true));
  }
  function choice(parent, label, options, chosen, change) {
    const bar = put(parent, "div", { class: "bar", role: "group", "aria-label": label });
    const buttons = options.map(([value, text]) => {
      const button = put(bar, "button", { type: "button", "aria-pressed": String(value === chosen) }, text);
      button.addEventListener("click", () => {
        buttons.forEach((other) => other.setAttribute("aria-pressed", String(other === button)));
        change(value);
      });
      return button;
    });
    return bar;
  }

  // ---- the chosen group ----

  let selected = null;
  const listeners = [];
  function mark() {
    for (const line of document.querySelectorAll("tr[data-group]")) {
      line.setAttribute("aria-selected", String(line.dataset.group === selected));
    }
  }
  function select(id, show = false) {
    if (!groupOf.has(id)) return;
    selected = id;
    mark();
    listeners.forEach((listener) => listener(id));
    if (show) {
      const heading = document.getElementById("group-title");
      heading.setAttribute("tabindex", "-1");
      heading.focus({ preventScroll: true });
      document.getElementById("group").scrollIntoView({ block: "start" });
    }
  }

  // ---- summary ----

  function summary() {
    const made = section("summary", "Summary");
    if (plan.provisional) paragraph(made, "Provisional: programs are not made yet, and a segment may still be cut again.");
    if (!report) paragraph(made, "There is no report.json beside this plan, so nothing here was simulated or compared.");
    const columns = put(made, "div", { class: "columns" });
    facts(columns, "Result", headline);
    facts(columns, "What was compiled", [
      ["Model", `${plan.model.name} (SHA-256 ${plan.model.sha256.slice(0, 12)}…)`],
      ["Profile", plan.profile.name],
      ["Options", `objective ${plan.options.objective}, fusion ${plan.options.fusion}, precision ${plan.options.precision}`],
      ["Groups", `${count(groups.length)} in ${plural(plan.segments.length - hosts.length, "segment")} on the chip`],
      ["Tessera", plan.compiler_version],
    ]);
  }

  // ---- the graph ----

  function fusedGraph() {
    const nodes = [...groups, ...hosts].map((place) => {
      const onHost = place.kind === "host";
      const names = onHost ? place.host.map((node) => node.node) : place.nodes;
      const bound = onHost ? "host" : place.bound_by;
      return {
        id: place.id,
        group: place.id,
        host: onHost,
        colour: BOUND[bound],
        lines: [
          `${place.id}  ${onHost ? "on the host" : plural(place.ops.length, "op")}`,
          short(names.length > 1 ? `${names[0]} … ${names[names.length - 1]}` : (names[0] ?? ""), 30),
          onHost ? plural(names.length, "node") : `${bytes(place.dram_bytes)}, ${seconds(place.cycles / clockHz)}, ${bound}`,
        ],
      };
    });
    const carried = new Map();
    const carry = (from, to, tensor, size) => {
      if (from === to || !number.has(from) || !number.has(to)) return;
      const key = `${number.get(from)} ${number.get(to)}`;
      if (!carried.has(key)) carried.set(key, { from, to, tensors: new Map() });
      carried.get(key).tensors.set(tensor, size);
    };
    if (ops.length) {
      ops.forEach((op) => op.inputs.forEach((at) => carry(ops[at].group, op.group, ops[at].output, ops[at].bytes)));
    } else {
      groups.forEach((group) => group.boundary.forEach((edge) => carry(group.id, edge.consumer_group, edge.tensor, 0)));
    }
    const edges = [...carried.values()].map(({ from, to, tensors }) => ({
      from,
      to,
      title: [...tensors].map(([name, size]) => `${name}${size ? `, ${bytes(size)}` : ""}`).join("\n"),
    }));
    return { nodes, edges };
  }
  function opGraph() {
    const nodes = ops.map((op, at) => ({
      id: String(at),
      group: op.group,
      host: !groupOf.has(op.group),
      colour: colourOf(op.group),
      lines: [`${op.kind}  ${op.group}`, short(op.node, 30), `${op.shape.join("×") || "scalar"}, ${bytes(op.bytes)}`],
    }));
    const edges = ops.flatMap((op, at) =>
      op.inputs.map((from) => ({ from: String(from), to: String(at), title: `${ops[from].output}, ${bytes(ops[from].bytes)}` })),
    );
    return { nodes, edges };
  }

  function graph() {
    const made = section(
      "graph",
      "Graph",
      "Fused: one box per group, marked by what bounds it. Ops: one box per op, marked by its group. Drag to move, use the wheel or the buttons to zoom. With the keyboard: arrow keys go from box to box along the edges, left and right to the neighbours in order, Enter shows the group.",
    );
    const views = [["fused", `Fused (${plural(groups.length + hosts.length, "box").replace("boxs", "boxes")})`]];
    if (ops.length) views.push(["ops", `Ops (${count(ops.length)})`]);
    const bar = choice(made, "View of the graph", views, "fused", (view) => draw(view));
    const zoomButton = (label, act) => put(bar, "button", { type: "button" }, label).addEventListener("click", act);
    const svg = d3.select(made).append("svg").attr("id", "drawing").attr("role", "group").attr("aria-label", "Graph of the network");
    svg.append("defs").append("marker").attr("id", "tip").attr("viewBox", "0 0 8 8").attr("refX", 7).attr("refY", 4)
      .attr("markerUnits", "userSpaceOnUse").attr("markerWidth", 8).attr("markerHeight", 8).attr("orient", "auto").append("path").attr("d", "M0,0L8,4L0,8z");
    const layer = svg.append("g");
    const zoom = d3.zoom().scaleExtent([0.02, 4]).on("zoom", (event) => layer.attr("transform", event.transform));
    svg.call(zoom).on("dblclick.zoom", null);
    zoomButton("Zoom in", () => svg.call(zoom.scaleBy, 1.4));
    zoomButton("Zoom out", () => svg.call(zoom.scaleBy, 1 / 1.4));
    zoomButton("Whole graph", () => fit(true));
    const legend = put(made, "p", { class: "note" });
    let drawn = null;

    function fit(whole) {
      if (!drawn) return;
      const { width, height } = svg.node().getBoundingClientRect();
      const across = width / (drawn.width + 40);
      const scale = whole ? Math.min(across, height / (drawn.height + 40), 1.2) : Math.min(Math.max(across, 0.5), 1);
      svg.call(zoom.transform, d3.zoomIdentity.translate((width - drawn.width * scale) / 2, 16).scale(scale));
    }
    function keep(node) {
      const { width, height } = svg.node().getBoundingClientRect();
      const [x, y] = d3.zoomTransform(svg.node()).apply([node.x, node.y]);
      if (x < 60 || y < 40 || x > width - 60 || y > height - 40) svg.call(zoom.translateTo, node.x, node.y);
    }
    function draw(view) {
      layer.selectAll("*").remove();
      drawn = null;
      const { nodes, edges } = view === "ops" ? opGraph() : fusedGraph();
      legend.replaceChildren();
      const keys = view === "ops" ? [] : Object.entries(BOUND).filter(([name]) => name !== "host" || hosts.length);
      for (const [name, colour] of keys) {
        put(legend, "span", { class: "key", style: `background:${colour}` });
        legend.append(`${name === "host" ? "on the host" : `bound by ${name}`}   `);
      }
      if (view === "ops") legend.append("The colour is that of the op's group; eight colours take turns.");
      if (nodes.length > NODES_DRAWN) {
        legend.replaceChildren(`${count(nodes.length)} boxes are too many to draw; up to ${count(NODES_DRAWN)} are drawn. The tables below have all groups.`);
        return;
      }
      const laid = new dagre.graphlib.Graph().setGraph({ ranksep: 28, nodesep: 18, ranker: "tight-tree" }).setDefaultEdgeLabel(() => ({}));
      nodes.forEach((node) => laid.setNode(node.id, { width: 216, height: 58 }));
      edges.forEach((edge) => laid.setEdge(edge.from, edge.to, {}));
      dagre.layout(laid);
      drawn = { width: laid.graph().width, height: laid.graph().height };
      const places = new Map(nodes.map((node, at) => [node.id, Object.assign(node, laid.node(node.id), { at, after: [], before: [] })]));
      edges.forEach((edge) => {
        places.get(edge.from).after.push(edge.to);
        places.get(edge.to).before.push(edge.from);
      });
      const line = d3.line((point) => point.x, (point) => point.y).curve(d3.curveBasis);
      const paths = layer.selectAll("path").data(edges).join("path").attr("class", "edge").attr("marker-end", "url(#tip)")
        .attr("d", (edge) => line(laid.edge(edge.from, edge.to).points));
      paths.append("title").text((edge) => edge.title);
      const boxes = layer.selectAll("g.node").data(nodes).join("g").attr("class", (node) => (node.host ? "node host" : "node"))
        .attr("transform", (node) => `translate(${node.x - 108},${node.y - 29})`).attr("role", "button").attr("tabindex", -1)
        .attr("aria-label", (node) => node.lines.join(", ")).attr("aria-pressed", "false");
      boxes.append("rect").attr("class", "box").attr("width", 216).attr("height", 58).attr("rx", 4);
      boxes.append("rect").attr("width", 6).attr("height", 58).attr("rx", 2).attr("fill", (node) => node.colour);
      boxes.selectAll("text").data((node) => node.lines).join("text").attr("x", 14).attr("y", (_, place) => 18 + place * 16)
        .attr("class", (_, place) => (place ? "soft" : "")).text((text) => text);
      function reach(id) {
        boxes.attr("tabindex", (node) => (node.id === id ? 0 : -1));
        paths.classed("near", (edge) => edge.from === id || edge.to === id);
      }
      function go(id) {
        if (id === undefined) return;
        reach(id);
        keep(places.get(id));
        boxes.filter((node) => node.id === id).node().focus({ preventScroll: true });
      }
      boxes.on("click", (_, node) => { reach(node.id); select(node.group); })
        .on("keydown", (event, node) => {
          const next = {
            ArrowDown: () => node.after[0],
            ArrowUp: () => node.before[0],
            ArrowRight: () => nodes[node.at + 1]?.id,
            ArrowLeft: () => nodes[node.at - 1]?.id,
            Home: () => nodes[0].id,
            End: () => nodes[nodes.length - 1].id,
          }[event.key];
          if (next) {
            event.preventDefault();
            go(next());
          } else if (event.key === "Enter" || event.key === " ") {
            event.preventDefault();
            reach(node.id);
            select(node.group, event.key === "Enter");
          }
        });
      marked = (id) => boxes.attr("aria-pressed", (node) => String(node.group === id));
      if (nodes.length) reach(nodes[0].id);
      marked(selected);
      fit(false);
    }
    let marked = () => {};
    listeners.push((id) => marked(id));
    draw("fused");
  }

  // ---- one group ----

  function groupPanel() {
    const made = section("group", "Group", "Choose a group in the graph or in a table.");
    const inside = put(made, "div", { "aria-live": "polite" });
    listeners.push((id) => {
      const group = groupOf.get(id);
      const price = priced.get(id);
      const { tiling, placement } = group;
      inside.replaceChildren();
      put(inside, "h3", {}, `${id}: ${nodesOf(group.nodes) || "parts of nodes that stand with an earlier group"}`);
      const bar = put(inside, "div", { class: "bar" });
      for (const [label, step] of [["Previous group", -1], ["Next group", 1]]) {
        const other = groups[groups.indexOf(group) + step];
        const button = put(bar, "button", { type: "button" }, label);
        if (other) button.addEventListener("click", () => select(other.id));
        else button.disabled = true;
      }
      const columns = put(inside, "div", { class: "columns" });
      const left = put(columns, "div");
      const right = put(columns, "div");
      facts(left, "Figures of the group", [
        ["Takes", `${cyclesAndTime(group.cycles)}, estimated; ${percent(group.cycles, totalCycles)} of the plan`],
        ["Bound by", group.bound_by],
        ["DRAM", bytes(group.dram_bytes) + (price ? `: ${bytes(price.dram_read_bytes)} read, ${bytes(price.dram_write_bytes)} written; of the reads ${bytes(price.weight_read_bytes)} are weights` : "")],
        ["Energy", joules(group.energy_j)],
        ["Stalls", Object.entries(group.stalls).map(([cause, cycles]) => `${cause} ${count(cycles)} cycles`).join(", ") || "none"],
        ["Tile of the output", `${shape(tiling.axes, tiling.tile)}; ${plural(tiling.tiles, "tile")}, ${plural(tiling.rounds, "round")}`],
        ["Core tile", `${shape(tiling.axes, tiling.core_tile)}; ${count(tiling.core_tiles)} per tile, ${tiling.order}`],
        ["Slices", `${count(tiling.channel_slices)} of the output channels, ${count(tiling.input_slices)} of the input channels`],
        ["Units", `${count(placement.units)} sharing ${placement.spread} (${placement.placement}); in each ${plural(placement.cores, "core")} sharing ${placement.core_spread}`],
        ["Halo", Object.entries(group.halo).map(([axis, mode]) => `${axis} ${mode}`).join(", ") || "none: one tile"],
        ["Inputs of a tile", `${bytes(group.sram_tile.bytes)}: ${Object.entries(group.sram_tile.inputs).map(([name, extents]) => `${name} ${extents.join("×")}`).join(", ")}`],
        ["Double buffered", tiling.double_buffered ? "yes" : "no"],
        ["Array busy", price ? `${(100 * price.array_utilisation).toFixed(0)} % of the compute cycles` : "–"],
      ]);
      put(left, "h3", {}, "Memory of a unit or core");
      table(left, "Memory of the group", [
        { label: "Level", of: ([level]) => level },
        { label: "Peak", num: true, of: ([, use]) => use.peak_bytes, shown: bytes },
        { label: "Capacity", num: true, of: ([, use]) => use.capacity_bytes, shown: bytes },
        { label: "Full", num: true, of: ([, use]) => use.peak_bytes / (use.capacity_bytes || 1), shown: (part) => percent(part, 1) },
      ], Object.entries(group.memory));
      put(left, "h3", {}, "Ops");
      table(left, "Ops of the group", [
        { label: "Node", of: (op) => (op.part === null ? op.node : `${op.node} (part ${op.part})`) },
        { label: "Kind", of: (op) => op.kind },
        { label: "Weights", num: true, of: (op) => op.weight_bytes || null, shown: bytes },
        { label: "Read", num: true, of: (op) => op.weight_loads || null, shown: (times) => plural(times, "time") },
        { label: "Kept in", of: (op) => op.weight_home },
      ], group.ops);
      if (pictures[id]) {
        put(right, "img", { class: "tiling", alt: `Tiles of ${id}: what two tiles need of the input, and which unit makes which tile of the output`, src: `data:image/svg+xml;charset=utf-8,${encodeURIComponent(pictures[id])}` });
      } else {
        paragraph(right, "No picture of the tiles was made with this plan.", "note");
      }
      put(right, "h3", {}, "Checks");
      table(right, "Checks of the group", [
        { label: "Rule", of: (rule) => (rule.name === rule.id ? rule.id : `${rule.name} (${rule.also ? `${rule.id}, ${rule.also}` : rule.id})`) },
        { label: "Outcome", of: (rule) => rule.outcome },
        { label: "Actual", num: true, of: (rule) => rule.actual, shown: (value) => value.toLocaleString("en-US") },
        { label: "Limit", num: true, of: (rule) => rule.limit, shown: (value) => value.toLocaleString("en-US") },
      ], group.rules);
      put(right, "h3", {}, "Why its neighbours are in other groups");
      boundaryTable(right, group.boundary.map((edge) => ({ ...edge, group: id })));
    });
  }

  // ---- tables ----

  function groupTable() {
    const made = section("groups", "All groups", "Cycles, energy and traffic are the plan's estimates. Click a heading to sort.");
    const prolongs = new Map(programs.flatMap((program) => Object.entries(program.simulated_group_cycles)));
    const columns = [
      { label: "Group", of: (group) => number.get(group.id), shown: (at) => groups[at]?.id ?? "", link: (group) => group.id },
      { label: "Nodes", of: (group) => nodesOf(group.nodes) },
      { label: "Ops", num: true, of: (group) => group.ops.length, shown: count },
      { label: "Tile", of: (group) => group.tiling.tile.join("×") },
      { label: "Tiles", num: true, of: (group) => group.tiling.tiles, shown: count },
      { label: "DRAM", num: true, of: (group) => group.dram_bytes, shown: bytes },
      { label: "Cycles", num: true, of: (group) => group.cycles, shown: count },
      { label: "Share", num: true, of: (group) => group.cycles / (totalCycles || 1), shown: (part) => percent(part, 1) },
      { label: "Simulated", num: true, of: (group) => prolongs.get(group.id) ?? null, shown: count },
      { label: "Energy", num: true, of: (group) => group.energy_j, shown: joules },
      { label: "Bound by", of: (group) => group.bound_by },
    ];
    table(made, "All groups", prolongs.size ? columns : columns.filter((column) => column.label !== "Simulated"), groups, (group) => group.id);
  }
  function boundaryTable(parent, edges) {
    table(parent, "Boundaries", [
      { label: "Group", of: (edge) => number.get(edge.group), shown: (at) => groups[at].id, link: (edge) => edge.group },
      { label: "Tensor", of: (edge) => edge.tensor },
      { label: "Size", num: true, of: (edge) => tensorOf.get(edge.tensor)?.bytes ?? null, shown: bytes },
      { label: "Read by", of: (edge) => edge.consumer ?? "graph output" },
      { label: "In", of: (edge) => edge.consumer_group ?? "–", link: (edge) => edge.consumer_group },
      { label: "Rule", of: (edge) => (edge.rule === null ? null : `${edge.rule_name ?? edge.rule} (${edge.rule})`) },
      { label: "Why", of: (edge) => edge.why },
    ], edges);
  }
  function boundaries() {
    const made = section("boundaries", "Boundaries", "Each tensor that leaves a group, its size, and what kept its reader out of the group: largest first.");
    const edges = groups.flatMap((group) => group.boundary.map((edge) => ({ ...edge, group: group.id })));
    const size = (edge) => tensorOf.get(edge.tensor)?.bytes ?? 0;
    boundaryTable(made, d3.sort(edges, (a, b) => d3.descending(size(a), size(b))));
  }
  function aboveFloor() {
    const { gap } = plan;
    const made = section("above-floor", "Above the floor", `${bytes(gap.above_floor_bytes)} of the DRAM traffic lie above the floor (inputs, weights and outputs once).`);
    table(made, "DRAM traffic above the floor", [
      { label: "Kind", of: (entry) => entry.kind },
      { label: "Name", of: (entry) => entry.name },
      { label: "Read", num: true, of: (entry) => entry.read_bytes, shown: bytes },
      { label: "Written", num: true, of: (entry) => entry.written_bytes, shown: bytes },
      { label: "Groups", of: (entry) => entry.groups.join(", ") },
      { label: "Larger memory that helps", of: (entry) => entry.fields.join(", ") || "none known" },
      { label: "Why", of: (entry) => entry.why },
    ], gap.entries);
  }
  function host() {
    const nodes = hosts.flatMap((segment) => segment.host.map((node) => ({ ...node, segment: segment.id })));
    const made = section("host", "Host", nodes.length ? "Nodes that the accelerator does not run. The times above leave them out." : "");
    if (!nodes.length) {
      paragraph(made, "Nothing runs on the host.");
      return;
    }
    table(made, "Nodes on the host", [
      { label: "Segment", of: (node) => node.segment },
      { label: "Node", of: (node) => node.node },
      { label: "Operator", of: (node) => node.op_type },
      { label: "Multiply-accumulates", num: true, of: (node) => node.macs, shown: count },
      { label: "Why", of: (node) => node.reason },
    ], nodes);
  }

  // ---- simulated time ----

  const programs = report ? report.programs : [];
  const width = Math.max(480, Math.min(1400, document.documentElement.clientWidth - 60));
  const plot = (options) => Plot.plot({ className: "plot", width, marginLeft: 70, marginBottom: 44, style: { fontSize: "12px" }, ...options });
  const endOf = (program) => Math.max(program.simulated_cycles, 1);
  // Round numbers of bytes are powers of two.
  const byteTicks = (top) => d3.range(0, top + 1, 2 ** Math.ceil(Math.log2(Math.max(top / 6, 1))));
  const timeAxis = (program) => ({ label: "time →", labelOffset: 40, domain: [0, endOf(program) / clockHz], tickFormat: seconds });

  // A section about one program at a time, chosen where there are several.
  function perProgram(id, title, note, draw) {
    const made = section(id, title, note);
    if (!programs.length) {
      paragraph(made, "Nothing was simulated: there is no program, or no report beside the plan.");
      return;
    }
    const inside = document.createElement("div");
    const show = (at) => {
      inside.replaceChildren();
      draw(inside, programs[at]);
    };
    if (programs.length > 1) {
      const bar = put(made, "div", { class: "bar" });
      const chosen = put(put(bar, "label", {}, "Segment "), "select");
      programs.forEach((program, at) => put(chosen, "option", { value: at }, `${program.segment}, ${cyclesAndTime(program.simulated_cycles)}`));
      chosen.value = String(d3.maxIndex(programs, (program) => program.simulated_cycles));
      chosen.addEventListener("change", () => show(Number(chosen.value)));
    }
    made.append(inside);
    show(d3.maxIndex(programs, (program) => program.simulated_cycles));
  }

  function time() {
    perProgram("time", "Time", "The program as simulated, command by command: by how much each group prolongs it, and how busy units and memories are meanwhile. `tessera trace` shows every command.", (parent, program) => {
      let at = 0;
      const strips = Object.entries(program.simulated_group_cycles).map(([group, cycles]) => {
        const begin = at;
        at += cycles;
        return { group, begin: begin / clockHz, end: at / clockHz, bound: groupOf.get(group)?.bound_by ?? "" };
      });
      const strip = plot({
        height: 90,
        x: timeAxis(program),
        y: { axis: null },
        ariaLabel: "Groups in time",
        marks: [
          Plot.rectX(strips, { x1: "begin", x2: "end", fill: (entry) => colourOf(entry.group), stroke: "var(--ground)", strokeWidth: 0.5, title: (entry) => `${entry.group}: ${seconds(entry.end - entry.begin)}, bound by ${entry.bound} as estimated`, tip: true }),
          Plot.text(strips.filter((entry) => (entry.end - entry.begin) * clockHz > endOf(program) / 30), { x: (entry) => (entry.begin + entry.end) / 2, text: "group", fill: "#111111" }),
        ],
      });
      figure(parent, `Groups, each as wide as the time by which it prolongs the program: ${cyclesAndTime(program.simulated_cycles)} in all (estimated ${count(program.estimated_cycles)}). The table of all groups has the figures.`, strip);
      const { usage } = program;
      const slice = usage.slice_cycles;
      const lines = [
        ["matrix units", usage.array],
        ["vector units", usage.vector],
        ...Object.entries(usage.bytes).map(([name, moved]) => [name, moved.map((amount) => amount / (slice * usage.bytes_per_cycle[name] || 1))]),
      ].flatMap(([what, shares]) => shares.map((share, place) => ({ what, share, time: ((place + 0.5) * slice) / clockHz })));
      figure(parent, "Use in time, as a share of what all units, or ports, of a name could do.", plot({
        height: 260,
        x: timeAxis(program),
        y: { label: "↑ share of the peak", domain: [0, 1], percent: false, tickFormat: "%", grid: true, clamp: true },
        color: { legend: true, range: PALETTE },
        ariaLabel: "Use in time",
        marks: [Plot.ruleY([0]), Plot.lineY(lines, { x: "time", y: "share", stroke: "what", curve: "step", strokeWidth: 1.5 })],
      }));
    });
  }

  function stalls() {
    perProgram("stalls", "Stalls", "What engines and cores do with their time, or wait for, as simulated; below, where the groups stall by the plan's estimate.", (parent, program) => {
      const parts = program.engines.flatMap((engine) =>
        Object.entries(engine.cycles).map(([what, cycles]) => ({ engine: `${engine.engine} × ${engine.count}`, what, cycles })),
      );
      figure(parent, "Every engine's time: the mean of all engines of a name.", plot({
        marginLeft: 130,
        height: 75 + 26 * program.engines.length,
        x: { label: "share of the program's time →", labelOffset: 40, tickFormat: "%" },
        y: { label: null },
        color: { legend: true, scheme: "tableau10" },
        ariaLabel: "What engines do with their time",
        marks: [Plot.barX(parts, { y: "engine", x: "cycles", fill: "what", offset: "normalize", title: (part) => `${part.engine}, ${part.what}: ${percent(part.cycles, endOf(program))}`, tip: true, sort: { color: null } })],
      }));
      table(parent, "What engines do with their time", [
        { label: "Engine", of: (part) => part.engine },
        { label: "Does or waits for", of: (part) => part.what },
        { label: "Cycles", num: true, of: (part) => part.cycles, shown: count },
        { label: "Share", num: true, of: (part) => part.cycles, shown: (cycles) => percent(cycles, endOf(program)) },
      ], d3.sort(parts.filter((part) => part.cycles), (a, b) => d3.descending(a.cycles, b.cycles)));
      const here = groups.filter((group) => group.segment === program.segment);
      const longest = d3.sort(here, (a, b) => d3.descending(a.cycles, b.cycles)).slice(0, LONGEST_SHOWN);
      const bars = longest.flatMap((group) => {
        const lost = Object.entries(group.stalls);
        const rest = group.cycles - d3.sum(lost, ([, cycles]) => cycles);
        return [["computing", rest], ...lost].map(([what, cycles]) => ({ group: group.id, what, cycles }));
      });
      figure(parent, `Cycles of ${here.length > longest.length ? `the ${longest.length} longest groups` : "the groups"} by the plan's estimate, longest first.`, plot({
        height: 75 + 18 * longest.length,
        x: { label: "cycles →", labelOffset: 40, grid: true },
        y: { label: null, domain: longest.map((group) => group.id) },
        color: { legend: true, scheme: "tableau10" },
        ariaLabel: "Estimated stalls of the groups",
        marks: [Plot.barX(bars, { y: "group", x: "cycles", fill: "what", title: (bar) => `${bar.group}, ${bar.what}: ${count(bar.cycles)} cycles`, tip: true })],
      }));
    });
  }

  function roofline() {
    perProgram("roofline", "Roofline", "Each group by its operations per DRAM byte and the rate it reaches in the simulation. A point near the slope is limited by the DRAM, one near the level line by the units.", (parent, program) => {
      const roof = program.roofline;
      const all = [{ ...roof.program, group: null }, ...roof.groups];
      const points = all.filter((point) => point.intensity > 0 && point.operations_per_s > 0);
      const peaks = [...Object.entries(roof.array_operations_per_s).map(([type, peak]) => [`matrix units, ${type}`, peak]), ["vector units", roof.vector_operations_per_s]].filter(([, peak]) => peak > 0);
      if (!points.length) {
        paragraph(parent, "No group both computes and reads or writes the DRAM.");
        return;
      }
      const peak = d3.max(peaks, ([, value]) => value);
      const ridge = peak / roof.dram_bytes_per_s;
      const low = Math.min(d3.min(points, (point) => point.intensity), ridge) / 2;
      const high = Math.max(d3.max(points, (point) => point.intensity), ridge) * 4;
      const name = (point) => point.group ?? "whole program";
      figure(parent, `${points.length - 1} groups and the whole program (larger, ringed).${all.length > points.length ? ` Without a place here, as they compute nothing or pass no DRAM byte: ${all.filter((point) => !points.includes(point)).map(name).join(", ")}.` : ""}`, plot({
        height: 420,
        marginRight: 130,
        x: { type: "log", label: "operations per DRAM byte →", labelOffset: 40, domain: [low, high], tickFormat: "~g" },
        y: { type: "log", label: "↑ operations per second", grid: true, tickFormat: rate },
        color: { legend: true, domain: ["dram", "array", "vector"], range: [BOUND.dram, BOUND.compute, BOUND["on-chip"]], tickFormat: (bound) => `ceiling: ${bound}` },
        ariaLabel: "Roofline",
        marks: [
          Plot.line([{ x: low, y: low * roof.dram_bytes_per_s }, { x: ridge, y: peak }], { x: "x", y: "y", stroke: "currentColor" }),
          ...peaks.map(([, value]) => Plot.line([{ x: value / roof.dram_bytes_per_s, y: value }, { x: high, y: value }], { x: "x", y: "y", stroke: "currentColor", strokeDasharray: value === peak ? null : "4 3" })),
          Plot.text(peaks, { x: high, y: ([, value]) => value, text: ([what]) => what, textAnchor: "start", dx: 4 }),
          Plot.dot(points, { x: "intensity", y: "operations_per_s", r: (point) => (point.group === null ? 7 : 4), fill: "bound_by", stroke: (point) => (point.group === null ? "var(--ink)" : "none"), strokeWidth: 2, title: (point) => `${name(point)}: ${rate(point.operations_per_s)} at ${decimals(point.intensity)} operations per byte`, tip: true }),
        ],
        r: { type: "identity" },
      }));
      table(parent, "Points of the roofline", [
        { label: "Group", of: (point) => (point.group === null ? -1 : number.get(point.group)), shown: (at) => (at < 0 ? "whole program" : groups[at].id), link: (point) => point.group },
        { label: "Operations", num: true, of: (point) => point.operations, shown: count },
        { label: "DRAM", num: true, of: (point) => point.dram_bytes, shown: bytes },
        { label: "Operations/byte", num: true, of: (point) => point.intensity, shown: decimals },
        { label: "Reached", num: true, of: (point) => point.operations_per_s, shown: rate },
        { label: "Of its ceiling", num: true, of: (point) => (point.cycles ? point.bound_cycles / point.cycles : null), shown: (part) => percent(part, 1) },
        { label: "Ceiling", of: (point) => point.bound_by },
      ], all, (point) => point.group);
    });
  }

  function memory() {
    perProgram("memory", "Memory over time", "What the fullest memory of each level holds, address by time: a rectangle is bytes that some later command still needs.", (parent, program) => {
      if (!program.held.length) {
        paragraph(parent, "No memory holds anything.");
        return;
      }
      const inside = document.createElement("div");
      const show = (held) => {
        inside.replaceChildren();
        const step = held.step_cycles / clockHz;
        const used = d3.max(held.held, (cell) => cell.address + cell.size_bytes) ?? 0;
        const top = used * 8 < held.capacity_bytes ? Math.max(used, 1) : held.capacity_bytes;
        figure(inside, `${held.level}${held.number ? ` ${held.number}` : ""}: at most ${bytes(d3.max(held.held_bytes) ?? 0)} of ${bytes(held.capacity_bytes)} held${top < held.capacity_bytes ? `; drawn up to address ${bytes(top)}` : ""}. Colours are those of the groups; grey lay there before the program.`, plot({
          height: 320,
          marginLeft: 80,
          x: timeAxis(program),
          y: { label: "↑ address", domain: [0, top], ticks: byteTicks(top), tickFormat: bytes },
          ariaLabel: `Memory ${held.level} over time`,
          marks: [Plot.rect(held.held, { x1: (cell) => cell.begin * step, x2: (cell) => cell.end * step, y1: "address", y2: (cell) => cell.address + cell.size_bytes, fill: (cell) => colourOf(tensorOf.get(cell.tensor)?.group), stroke: "var(--panel)", strokeWidth: 0.3, title: (cell) => `${cell.tensor ?? "there before the program"}\n${bytes(cell.size_bytes)} at ${count(cell.address)}\n${seconds(cell.begin * step)} to ${seconds(cell.end * step)}`, tip: true })],
        }));
        const curve = held.held_bytes.map((amount, place) => ({ amount, time: (place + 0.5) * step }));
        figure(inside, "Bytes held in all.", plot({
          height: 150,
          marginLeft: 80,
          x: timeAxis(program),
          y: { label: "↑ held", domain: [0, top], ticks: byteTicks(top * 2), tickFormat: bytes, grid: true },
          ariaLabel: `Bytes held in ${held.level}`,
          marks: [Plot.areaY(curve, { x: "time", y: "amount", curve: "step", fill: PALETTE[1], fillOpacity: 0.6 }), Plot.ruleY([top], { strokeDasharray: "4 3" })],
        }));
      };
      const full = (held) => (d3.max(held.held_bytes) ?? 0) / (held.capacity_bytes || 1);
      const fullest = d3.maxIndex(program.held, full);
      choice(parent, "Memory level", program.held.map((held, at) => [at, held.level]), fullest, (at) => show(program.held[at]));
      parent.append(inside);
      show(program.held[fullest]);
    });
  }

  function assumptions() {
    const made = section("assumptions", "Assumptions", "What the figures rest on.");
    const list = put(made, "ul");
    (report ? report.assumptions : []).forEach((text) => put(list, "li", {}, text));
    const more = put(made, "details");
    put(more, "summary", {}, "Libraries in this file, and their licences");
    put(more, "pre", {}, licenses);
  }

  main.replaceChildren();
  summary();
  graph();
  groupPanel();
  groupTable();
  time();
  stalls();
  roofline();
  memory();
  boundaries();
  aboveFloor();
  host();
  assumptions();
  if (groups.length) select(d3.greatest(groups, (a, b) => d3.ascending(a.cycles, b.cycles)).id);
  document.documentElement.dataset.drawn = "true";
})();
