// The bar of sections: marks the one that is being read.

function startSections() {
  const links = new Map(
    [...document.querySelectorAll(".contents a")].map((link) => [link.hash.slice(1), link]),
  );
  const visible = new Set();
  const observer = new IntersectionObserver(
    (entries) => {
      for (const { isIntersecting, target } of entries) {
        if (isIntersecting) visible.add(target.id);
        else visible.delete(target.id);
      }
      const current = [...links.keys()].find((id) => visible.has(id));
      for (const [id, link] of links) {
        if (id === current) link.setAttribute("aria-current", "true");
        else link.removeAttribute("aria-current");
      }
      // Only the bar is moved: scrollIntoView would move the page under the reader.
      const bar = document.querySelector(".contents ul");
      if (current) bar.scrollLeft = links.get(current).offsetLeft - bar.clientWidth / 2;
    },
    { rootMargin: "-30% 0px -60% 0px" },
  );
  for (const id of links.keys()) observer.observe(byId(id));
}
