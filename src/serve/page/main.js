const models = await (await fetch('/v1/models')).json();
document.getElementById('main').textContent = models.data.map((m) => m.id).join('\n');
