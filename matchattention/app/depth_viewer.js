export default {
  template: `
    <div class="viewer" :data-ready="disparity !== null">
      <div class="viewer-stage" ref="stage" :style="{ aspectRatio: width + ' / ' + height, width: 'min(100%, calc(78vh * ' + width / height + '))' }"
           @pointermove="look" @pointerdown="look" @pointerleave="leave">
        <img :src="base" alt="left photo" draggable="false">
        <img :src="layer" alt="" draggable="false" class="viewer-layer"
             :style="{ clipPath: 'inset(0 0 0 ' + split + '%)' }">
        <div class="viewer-handle" role="slider" tabindex="0" aria-label="Uncover the left photo"
             aria-valuemin="0" aria-valuemax="100" :aria-valuenow="Math.round(split)"
             :style="{ left: split + '%' }"
             @pointerdown.stop.prevent="grab" @pointermove.stop="drag" @pointerup.stop="held = false"
             @keydown.left.prevent="split = Math.max(0, split - 2)"
             @keydown.right.prevent="split = Math.min(100, split + 2)">
          <span class="viewer-grip">‹ ›</span>
        </div>
        <div class="viewer-probe" v-if="pixel" :style="probePlace">
          <span class="viewer-dot"></span>
          <span class="viewer-tip" :style="{ transform: 'translate(' + (pixel.x > width / 2 ? '-100%' : '0') + ', -50%)',
                marginLeft: pixel.x > width / 2 ? '-14px' : '14px' }">{{ pixel.short }}</span>
        </div>
      </div>
      <div class="viewer-below">
        <span class="viewer-readout" aria-live="polite">{{ pixel ? pixel.long : prompt }}</span>
        <span class="viewer-legend" v-if="legend">
          <template v-if="legend.colours">
            <span>{{ legend.low }}</span>
            <span class="viewer-bar" :style="{ background: 'linear-gradient(to right,' + legend.colours.join(',') + ')' }">
            </span>
            <span>{{ legend.high }}</span>
          </template>
          <span>{{ legend.text }}</span>
        </span>
      </div>
    </div>`,

  props: {
    base: String,
    layer: String,
    values: String,
    width: Number,
    height: Number,
    metres: Object,
    legend: Object,
  },

  data() {
    return { split: 35, held: false, pixel: null, disparity: null, confidence: null, occlusion: null };
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
  },

  watch: {
    values: { handler: "fetchValues", immediate: true },
  },

  methods: {
    async fetchValues() {
      this.disparity = this.pixel = null;
      if (!this.values) return;
      const asked = this.values;
      const buffer = await (await fetch(asked)).arrayBuffer();
      if (asked !== this.values) return; // another result came meanwhile
      const count = this.width * this.height;
      this.confidence = new Uint8Array(buffer, 4 * count, count);
      this.occlusion = new Uint8Array(buffer, 5 * count, count);
      this.disparity = Object.freeze({ at: new Float32Array(buffer, 0, count) });
    },
    look(event) {
      if (this.held || this.disparity === null) return;
      const box = this.$refs.stage.getBoundingClientRect();
      const x = Math.floor(((event.clientX - box.left) / box.width) * this.width);
      const y = Math.floor(((event.clientY - box.top) / box.height) * this.height);
      if (x < 0 || y < 0 || x >= this.width || y >= this.height) return (this.pixel = null);
      const index = y * this.width + x;
      const disparity = this.disparity.at[index];
      const parts = [disparity.toFixed(2) + " px"];
      if (this.metres) parts.push(this.distance(disparity));
      const short = parts.join(" · ");
      parts.push("confidence " + Math.round((100 * this.confidence[index]) / 255) + " %");
      if (this.occlusion[index]) parts.push("not seen by the right camera");
      this.pixel = { x, y, short, long: "x " + x + ", y " + y + ": " + parts.join(" · ") };
    },
    leave(event) {
      if (event.pointerType === "mouse") this.pixel = null; // a lifted finger leaves its value to be read
    },
    distance(disparity) {
      const shifted = disparity + this.metres.doffs;
      if (!(shifted > 0)) return "∞ m";
      const metres = this.metres.scale / shifted;
      return (metres < 10 ? metres.toFixed(3) : metres.toFixed(1)) + " m";
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
