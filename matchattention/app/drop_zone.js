export default {
  template: `
    <label class="drop-zone" :class="{ compact, over, filled: caption, busy: sent !== null }"
           @dragover.prevent="over = true" @dragleave="over = false" @drop.prevent="drop">
      <input type="file" :accept="accept" @change="choose" :aria-label="title">
      <img v-if="preview" :src="preview" alt="">
      <span class="drop-icon" v-if="!preview"><q-icon :name="icon" /></span>
      <span class="drop-words">
        <span class="drop-title">{{ title }}</span>
        <span class="drop-caption">{{ sent !== null ? 'sending ' + sent + ' %' : caption || hint }}</span>
      </span>
    </label>`,

  props: {
    title: String,
    hint: String,
    address: String,
    accept: String,
    icon: String,
    compact: Boolean,
    preview: String,
    caption: String,
  },

  data() {
    return { over: false, sent: null };
  },

  methods: {
    drop(event) {
      this.over = false;
      if (event.dataTransfer.files.length) this.send(event.dataTransfer.files[0]);
    },
    choose(event) {
      if (event.target.files.length) this.send(event.target.files[0]);
      event.target.value = ""; // so that the same file can be chosen again
    },
    send(file) {
      // XMLHttpRequest, because fetch does not tell how much has been sent.
      const request = new XMLHttpRequest();
      request.open("POST", (window.path_prefix || "") + this.address);
      request.setRequestHeader("X-File-Name", encodeURIComponent(file.name));
      request.upload.onprogress = (event) => (this.sent = Math.round((100 * event.loaded) / event.total));
      request.onload = () => {
        this.sent = null;
        if (request.status === 200) return this.$emit("received");
        let words = "The file could not be taken: reload the page and try again.";
        try {
          words = JSON.parse(request.responseText).error || words;
        } catch {
          // not our answer: the general sentence stays
        }
        this.$emit("refused", words);
      };
      request.onerror = () => {
        this.sent = null;
        this.$emit("refused", "The file did not arrive: is it too large, or has the program ended?");
      };
      this.sent = 0;
      request.send(file);
    },
  },
};
