// Browsers start no worker from a page that was opened as a file. The search is one, so there it runs in a frame that is
// not shown: the same script, with messages to and from this page.
if (location.protocol === "file:")
  window.Worker = class extends EventTarget {
    constructor(url) {
      super();
      this.onmessage = this.onerror = null;
      this.waiting = [];
      this.frame = document.createElement("iframe");
      this.frame.hidden = true;
      document.body.append(this.frame);
      const inside = this.frame.contentWindow;
      inside.importScripts = (...urls) => Promise.all(urls.map((one) => this.load(one)));
      inside.postMessage = (data) => this.tell(new MessageEvent("message", { data }));
      this.load(url).then(
        () => { for (const data of this.waiting.splice(0)) this.deliver(data); this.waiting = null; },
        () => this.tell(new Event("error")),
      );
    }
    load(url) {
      return new Promise((resolve, reject) => {
        const script = this.frame.contentDocument.createElement("script");
        Object.assign(script, { src: url, onload: resolve, onerror: reject });
        this.frame.contentDocument.body.append(script);
      });
    }
    deliver(data) {
      this.frame.contentWindow.dispatchEvent(new MessageEvent("message", { data }));
    }
    tell(event) {
      this[`on${event.type}`]?.(event);
      this.dispatchEvent(event);
    }
    postMessage(data) {
      if (this.waiting) this.waiting.push(data);
      else this.deliver(data);
    }
    terminate() {
      this.frame.remove();
    }
  };
