export default {
  template: `
    <div class="viewer" :data-ready="motion !== null">
      <div class="viewer-stage" ref="stage" :style="{ aspectRatio: width + ' / ' + height, width: 'min(100%, calc(78vh * ' + width / height + '))' }"
           @pointermove="look" @pointerdown="look" @pointerleave="leave">
        <img :src="base" alt="first frame" draggable="false">
        <img :src="layer" alt="" draggable="false" class="viewer-layer"
             :style="{ clipPath: 'inset(0 0 0 ' + split + '%)' }">
        <svg v-if="pixel" class="flow-path" :viewBox="'0 0 ' + width + ' ' + height">
          <line :x1="pixel.x + 0.5" :y1="pixel.y + 0.5" :x2="pixel.x + 0.5 + pixel.u" :y2="pixel.y + 0.5 + pixel.v"></line>
        </svg>
        <div class="viewer-handle" role="slider" tabindex="0" aria-label="Uncover the first frame"
             aria-valuemin="0" aria-valuemax="100" :aria-valuenow="Math.round(split)"
             :style="{ left: split + '%' }"
             @pointerdown.stop.prevent="grab" @pointermove.stop="drag" @pointerup.stop="held = false"
             @keydown.left.prevent="split = Math.max(0, split - 2)"
             @keydown.right.prevent="split = Math.min(100, split + 2)">
          <span class="viewer-grip">‹ ›</span>
        </div>
        <div class="viewer-probe" v-if="pixel" :style="probePlace">
          <span class="viewer-dot"></span>
          <span class="viewer-tip flow-tip" :style="{ transform: 'translate(' + (pixel.x > width / 2 ? '-100%' : '0') + ', -50%)',
                marginLeft: pixel.x > width / 2 ? '-14px' : '14px' }">
            <span class="flow-wheel">
              <img :src="wheel" alt="">
              <span class="flow-needle" :style="needle"></span>
            </span>
            {{ pixel.short }}
          </span>
        </div>
      </div>
      <div class="viewer-below">
        <span class="viewer-readout" aria-live="polite">{{ pixel ? pixel.long : prompt }}</span>
        <span class="viewer-legend"><img class="flow-key" :src="wheel" alt="">
          <span>rim {{ longest && longest.toFixed(1) }} px · {{ legend }}</span></span>
      </div>
    </div>`,

  props: {
    base: String,
    layer: String,
    values: String,
    width: Number,
    height: Number,
    longest: Number,
    wheel: String,
    legend: String,
  },

  data() {
    return { split: 35, held: false, pixel: null, motion: null, confidence: null, occlusion: null };
  },

  computed: {
    prompt() {
      return window.matchMedia("(hover: none)").matches ? "Touch the picture to read it" : "Point at the picture to read it";
    },
    probePlace() {
      return {
        left: (100 * (this.pixel.x + 0.5)) / this.width + "%",
        top: (100 * (this.pixel.y + 0.5)) / this.height + "%",
      };
    },
    needle() {
      const length = Math.hypot(this.pixel.u, this.pixel.v);
      const scale = 50 / Math.max(this.longest, length, 1e-6); // beyond the rim the needle stays on it
      return { left: 50 + scale * this.pixel.u + "%", top: 50 + scale * this.pixel.v + "%" };
    },
  },

  watch: {
    values: { handler: "fetchValues", immediate: true },
  },

  methods: {
    async fetchValues() {
      this.motion = this.pixel = null;
      if (!this.values) return;
      const asked = this.values;
      const buffer = await (await fetch(asked)).arrayBuffer();
      if (asked !== this.values) return; // another result came meanwhile
      const count = this.width * this.height;
      this.confidence = new Uint8Array(buffer, 8 * count, count);
      this.occlusion = new Uint8Array(buffer, 9 * count, count);
      this.motion = Object.freeze({ u: new Float32Array(buffer, 0, count), v: new Float32Array(buffer, 4 * count, count) });
    },
    look(event) {
      if (this.held || this.motion === null) return;
      const box = this.$refs.stage.getBoundingClientRect();
      const x = Math.floor(((event.clientX - box.left) / box.width) * this.width);
      const y = Math.floor(((event.clientY - box.top) / box.height) * this.height);
      if (x < 0 || y < 0 || x >= this.width || y >= this.height) return (this.pixel = null);
      const index = y * this.width + x;
      const u = this.motion.u[index];
      const v = this.motion.v[index];
      const short = Math.hypot(u, v).toFixed(2) + " px";
      const parts = ["right " + u.toFixed(2) + ", down " + v.toFixed(2) + " px"];
      parts.push("confidence " + Math.round((100 * this.confidence[index]) / 255) + " %");
      if (this.occlusion[index]) parts.push("not in the second frame");
      this.pixel = { x, y, u, v, short, long: "x " + x + ", y " + y + ": " + parts.join(" · ") };
    },
    leave(event) {
      if (event.pointerType === "mouse") this.pixel = null; // a lifted finger leaves its value to be read
    },
    grab(event) {
      this.held = true;
      this.pixel = null;
      event.target.setPointerCapture(event.pointerId);
    },
    drag(event) {
      if (!this.held) return;
      const box = this.$refs.stage.getBoundingClientRect();
      this.split = Math.min(100, Math.max(0, (100 * (event.clientX - box.left)) / box.width));
    },
  },
};
